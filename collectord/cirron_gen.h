/* The generated protobuf code does not compile under our warnings. */
#ifndef CIRRON_GEN_H
#define CIRRON_GEN_H

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include "proto/cirron.pb-c.h"
#pragma GCC diagnostic pop

#endif

/* A fuzz target: one function. With libFuzzer (make fuzz) it is given inputs for as long as one likes; with replay.c the files that
 * are kept in corpus/NAME, once each. */
#ifndef CIRRON_FUZZ_H
#define CIRRON_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

#endif

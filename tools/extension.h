/* Included before everything else into the files of the loadable extension: SQLite is called through the table that the program hands
 * over when it loads us, so that we use the program's SQLite whichever that is, and bring none of our own. */
#ifndef CIRRON_EXTENSION_H
#define CIRRON_EXTENSION_H

#include <sqlite3ext.h>

SQLITE_EXTENSION_INIT3

#endif

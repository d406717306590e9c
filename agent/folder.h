/* Folders that files of ours go to. */
#ifndef CIRRON_FOLDER_H
#define CIRRON_FOLDER_H

/* Makes a folder, and those around it that are not there. 0 or a negative errno. */
int folder_make(const char *folder);

#endif

/* Text of strangers made fit for the store: whatever is not UTF-8 becomes U+FFFD. Any thread. */
#ifndef CIRRON_UTF8_H
#define CIRRON_UTF8_H

#include <stddef.h>

/* How many bytes from the start are UTF-8 (no surrogates, no overlong forms; zero bytes are fine). */
size_t utf8_valid(const char *text, size_t len);

/* A copy from malloc with each run of bytes that begins no character replaced by U+FFFD, of *out_len bytes and a zero byte. NULL: no
 * memory. */
char *utf8_clean(const char *text, size_t len, size_t *out_len);

/* The greatest length of at most `limit` that does not cut a character in two. */
size_t utf8_cut(const char *text, size_t len, size_t limit);

#endif

/* Text from a traced program, made safe to show. Such text may hold anything: escape sequences, line ends, zero bytes, marks
 * that turn the writing direction, bytes that are no UTF-8. */
#ifndef CIRRON_TEXT_H
#define CIRRON_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"

/* One UTF-8 sequence. Returns its length and the character, or 0 where the bytes are none (too long forms, surrogates, cut). */
size_t text_decode(const char *text, size_t len, uint32_t *out);

/* Adds the text with everything escaped that could move the cursor or break a line: \n, \t, \x1b, \u202e. `utf8` false: all
 * that is not ASCII is escaped too. */
void text_show(struct buf *out, const char *text, size_t len, bool utf8);

/* The same, cut to `columns` on the screen, with "..." (one character in UTF-8) for what is left out. */
void text_show_cut(struct buf *out, const char *text, size_t len, bool utf8, size_t columns);

/* Adds the text as a JSON string with its quotes. Exact, but for bytes that are no UTF-8: those become U+FFFD. */
void text_json(struct buf *out, const char *text, size_t len);

/* Columns that shown text takes on the screen (after text_show). */
size_t text_width(const char *shown);

#endif

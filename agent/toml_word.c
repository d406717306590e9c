/* See toml.h. Here: what stands without quotes - numbers, truth values, dates and times. */
#include <math.h>
#include <string.h>

#include "toml_own.h"

/* --- numbers --- */

#define DIGITS "0123456789"

/* Length of digits with single underscores between them, or 0. */
static size_t digits_len(const char *begin, const char *digits) {
  const char *at = begin;
  for (;;) {
    size_t n = strspn(at, digits);
    if (n == 0)
      return 0;
    at += n;
    if (*at != '_')
      return (size_t)(at - begin);
    at++;
  }
}

/* Length of a decimal number, whole or not; 0: it is none. No zero may lead. */
static size_t decimal_len(const char *begin) {
  const char *at = begin + (*begin == '-' || *begin == '+');
  size_t n = digits_len(at, DIGITS);
  if (n == 0 || (*at == '0' && n > 1))
    return 0;
  at += n;
  if (*at == '.') {
    n = digits_len(at + 1, DIGITS);
    if (n == 0)
      return 0;
    at += 1 + n;
  }
  if (*at == 'e' || *at == 'E') {
    at++;
    at += *at == '-' || *at == '+';
    n = digits_len(at, DIGITS);
    if (n == 0)
      return 0;
    at += n;
  }
  return (size_t)(at - begin);
}

/* Length of 0x..., 0o... or 0b..., with its base; 0: it is none. */
static size_t based_len(const char *begin, unsigned *base) {
  static const struct {
    char letter;
    unsigned base;
    const char *digits;
  } kinds[] = {{'x', 16, DIGITS "abcdefABCDEF"}, {'o', 8, "01234567"}, {'b', 2, "01"}};
  for (unsigned i = 0; i < 3 && begin[0] == '0'; i++)
    if (begin[1] == kinds[i].letter) {
      size_t n = digits_len(begin + 2, kinds[i].digits);
      *base = kinds[i].base;
      return n ? n + 2 : 0;
    }
  return 0;
}

/* Beyond 64 bits it is a DOC_FLOAT, like a decimal one. */
static void resolve_based(struct doc_node *node, unsigned base) {
  uint64_t whole = 0;
  double number = 0;
  bool fits = true;
  for (const char *at = node->text.bytes + 2; *at; at++) {
    unsigned digit = (unsigned)(*at <= '9' ? *at - '0' : (*at | 0x20) - 'a' + 10);
    fits = fits && whole <= ((uint64_t)INT64_MAX - digit) / base;
    whole = whole * base + digit;
    number = number * base + digit;
  }
  node->kind = fits ? DOC_INT : DOC_FLOAT;
  node->whole = fits ? (int64_t)whole : 0;
  node->number = fits ? (double)whole : number;
}

static bool resolve_special(struct doc_node *node) {
  const char *at = node->text.bytes;
  bool minus = *at == '-';
  at += *at == '-' || *at == '+';
  if (strcmp(at, "inf") != 0 && strcmp(at, "nan") != 0)
    return false;
  node->kind = DOC_FLOAT;
  node->number = *at == 'n' ? (double)NAN : minus ? -HUGE_VAL : HUGE_VAL;
  return true;
}

/* --- dates and times --- */

/* Length of a text of this form, in which 0 stands for any digit; 0: it is none. */
static size_t form_len(const char *at, const char *form) {
  size_t n = 0;
  for (; form[n]; n++)
    if (form[n] == '0' ? at[n] < '0' || at[n] > '9' : at[n] != form[n])
      return 0;
  return n;
}

/* 12:30, and what of :59.5 is there. */
static size_t time_len(const char *at) {
  size_t n = form_len(at, "00:00"), more = n ? form_len(at + n, ":00") : 0;
  if (more && at[n + more] == '.')
    more += 1 + strspn(at + n + more + 1, DIGITS);
  return n + more;
}

static size_t date_len(const char *at) {
  size_t n = form_len(at, "0000-00-00"), time = 0;
  if (n == 0)
    return time_len(at);
  if (at[n] == 'T' || at[n] == 't' || at[n] == ' ')
    time = time_len(at + n + 1);
  if (time == 0)
    return n;
  n += 1 + time;
  if (at[n] == 'Z' || at[n] == 'z')
    return n + 1;
  size_t zone = at[n] == '-' || at[n] == '+' ? form_len(at + n + 1, "00:00") : 0;
  return zone ? n + 1 + zone : n;
}

/* --- all --- */

#define ENDS " \t\n,#=[]{}\"'"

/* The text of a node: so many bytes, without those that are `skipped`. */
static bool take(struct toml *t, size_t len, char skipped, struct doc_text *out) {
  size_t from = t->doc->text_used;
  for (const char *end = t->at + len; t->at < end; t->at++)
    if (*t->at != skipped && !doc_put(t->doc, t->at, 1))
      return false;
  return doc_text(t->doc, from, out);
}

static bool is_word(const struct doc_text *text) {
  static const char *const words[] = {"true", "false", "inf", "nan", "+inf", "+nan", "-inf", "-nan"};
  for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++)
    if (doc_is(text, words[i]))
      return true;
  return false;
}

struct doc_node *toml_word(struct toml *t) {
  struct doc_text here = {.bytes = t->at, .len = strcspn(t->at, ENDS)};
  struct doc_node *node = doc_node(t->doc, DOC_TEXT, t->line);
  unsigned base = 0;
  size_t date = date_len(t->at); /* may hold a blank */
  if (date && strcspn(t->at + date, ENDS) == 0)
    return node && take(t, date, 0, &node->text) ? node : NULL;
  bool number = here.len && (based_len(t->at, &base) == here.len || decimal_len(t->at) == here.len);
  if (!number && !is_word(&here))
    return TOML_FAIL(t, "a value is expected (a text has to be put in quotes), not %.20s",
                     *t->at && *t->at != '\n' ? t->at : "the end of the line");
  if (!node || !take(t, here.len, '_', &node->text))
    return NULL;
  if (base)
    resolve_based(node, base);
  else if (!resolve_special(node))
    doc_resolve(node);
  return node;
}

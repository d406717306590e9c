#include "collective.h"

#include <ctype.h>
#include <string.h>

#define RANK_DIGITS 9

static size_t word(const char *text, size_t len) {
  const char *end = memchr(text, ' ', len);
  return end ? (size_t)(end - text) : len;
}

static bool is(const char *text, size_t len, const char *what) {
  return strlen(what) == len && memcmp(text, what, len) == 0;
}

/* Digits at *at, which goes behind them. -1: there are none, or too many. */
static int64_t number(const char *text, size_t len, size_t *at) {
  int64_t value = 0;
  size_t from = *at;
  while (*at < len && isdigit((unsigned char)text[*at]) && *at - from < RANK_DIGITS)
    value = value * 10 + (text[(*at)++] - '0');
  return *at > from ? value : -1;
}

void collective_parse(const char *text, size_t len, struct collective *out) {
  size_t at = word(text, len), next, digits;
  *out = (struct collective){.op = text, .op_len = at, .group = "world", .group_len = 5, .peer = -1};
  if (at == len)
    return;
  at++;
  next = at + word(text + at, len - at);
  if (next < len && (is(text + at, next - at, "to") || is(text + at, next - at, "from"))) {
    digits = next + 1;
    int64_t peer = number(text, len, &digits);
    if (peer >= 0 && (digits == len || text[digits] == ' ')) {
      out->peer = peer;
      at = digits + 1;
    }
  }
  if (at < len) {
    out->group = text + at;
    out->group_len = len - at;
  }
}

bool collective_holds(const char *group, size_t len, int64_t rank) {
  const char *list = memchr(group, '[', len);
  size_t at = list ? (size_t)(list - group) + 1 : len;
  if (at >= len || !isdigit((unsigned char)group[at]) || memchr(group + at, ' ', len - at)) /* "[64 ranks]" */
    return true;
  while (at < len) {
    int64_t first = number(group, len, &at), last = first;
    if (first >= 0 && at < len && group[at] == '-') {
      at++;
      last = number(group, len, &at);
    }
    if (first <= rank && rank <= last)
      return true;
    at++; /* the comma, or the end */
  }
  return false;
}

bool collective_meets(const char *op, size_t len) {
  static const char *const meeting[] = {"all_reduce",
                                        "all_reduce_coalesced",
                                        "all_gather",
                                        "all_gather_single",
                                        "all_gather_into_tensor",
                                        "_all_gather_base",
                                        "all_gather_coalesced",
                                        "all_gather_object",
                                        "reduce_scatter",
                                        "reduce_scatter_single",
                                        "reduce_scatter_tensor",
                                        "_reduce_scatter_base",
                                        "all_to_all",
                                        "all_to_all_single",
                                        "barrier",
                                        "monitored_barrier"};
  for (size_t i = 0; i < sizeof meeting / sizeof *meeting; i++)
    if (is(op, len, meeting[i]))
      return true;
  return false;
}

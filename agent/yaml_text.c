/* See yaml.h. Here: texts - plain ones, quoted ones, and blocks (| and >).
 *
 * Line ends inside a text are folded the way YAML does: one becomes a blank, of several the first is dropped and the others stay.
 */
#include <string.h>

#include "yaml_own.h"

/* --- plain --- */

bool yaml_plain_first(struct yaml *y, bool flow) {
  char c = *y->at;
  switch (c) {
  case '&':
  case '*':
    return YAML_FAIL(y, "anchors and aliases ('%c') are not supported; a text that begins so has to be put in quotes", c);
  case '!':
    return YAML_FAIL(y, "tags ('!') are not supported; a text that begins so has to be put in quotes");
  case '-':
  case '?':
  case ':':
    if (!yaml_gap(y->at[1]) && !(flow && yaml_bracket(y->at[1])))
      return true;
    return YAML_FAIL(y, "'%c' is out of place here", c);
  case '|':
  case '>':
  case '%':
  case '@':
  case '`':
  case '#':
  case ',':
  case '[':
  case ']':
  case '{':
  case '}':
    return YAML_FAIL(y, "a text that begins with '%c' has to be put in quotes", c);
  default:
    return true;
  }
}

/* Appends this line up to its end or a comment, without the blanks before that. */
static bool put_line(struct yaml *y) {
  const char *begin = y->at, *end;
  while (!yaml_eol(*y->at) && !yaml_comment(y, y->at))
    y->at++;
  for (end = y->at; end > begin && yaml_blank(end[-1]);)
    end--;
  return doc_put(y->doc, begin, (size_t)(end - begin));
}

bool yaml_put_breaks(struct doc *doc, unsigned breaks) {
  if (breaks == 1)
    return doc_put(doc, " ", 1);
  for (; breaks > 1; breaks--)
    if (!doc_put(doc, "\n", 1))
      return false;
  return true;
}

/* Where does the text go on below the end of this line? Number of line ends between, 0: nowhere. */
static unsigned continues(const struct yaml *y, int parent, struct yaml *out) {
  struct yaml z = *y;
  unsigned breaks = 0;
  while (*z.at == '\n') {
    yaml_next_line(&z);
    breaks++;
    const char *at = z.at + strspn(z.at, " \t");
    if (*at == 0)
      return 0;
    if (*at != '\n') {
      z.at += strspn(z.at, " ");
      break;
    }
    z.at = at;
  }
  if (yaml_at_end(&z) || yaml_column(&z) <= parent || yaml_comment(&z, z.at + strspn(z.at, "\t")))
    return 0;
  *out = z;
  return breaks;
}

struct doc_node *yaml_plain(struct yaml *y, int parent) {
  struct doc_node *node = doc_node(y->doc, DOC_TEXT, y->line);
  size_t from = y->doc->text_used;
  unsigned breaks, lines = 1;
  if (!node || !put_line(y))
    return NULL;
  for (struct yaml below; *y->at == '\n' && (breaks = continues(y, parent, &below)); lines++) {
    *y = below;
    if (*y->at == '\t')
      return YAML_FAIL(y, "a tab stands in the indentation; use spaces");
    if (yaml_plain_colon(y))
      return YAML_FAIL(y, "this line is indented too far for a key; a text that holds ': ' has to be put in quotes");
    if (!yaml_put_breaks(y->doc, breaks) || !put_line(y))
      return NULL;
  }
  y->at += strcspn(y->at, "\n"); /* a comment */
  if (!doc_text(y->doc, from, &node->text))
    return NULL;
  if (lines == 1)
    doc_resolve(node);
  return node;
}

/* --- in quotes --- */

/* The digits behind \x, \u and \U: 2, 4 or 8. */
static bool hex(struct yaml *y, unsigned n, uint32_t *out) {
  uint32_t code = 0;
  for (; n; n--, y->at++) {
    char c = *y->at;
    if (c >= '0' && c <= '9')
      code = code << 4 | (uint32_t)(c - '0');
    else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))
      code = code << 4 | (uint32_t)((c | 0x20) - 'a' + 10);
    else
      return YAML_FAIL(y, "a number in hexadecimal is expected behind '\\x', '\\u' and '\\U'");
  }
  *out = code;
  return true;
}

static bool put_number(struct yaml *y, unsigned n) {
  uint32_t code = 0, low = 0;
  if (!hex(y, n, &code))
    return false;
  if (code >= 0xd800 && code < 0xdc00 && y->at[0] == '\\' && y->at[1] == 'u') { /* as JSON writes what is beyond 16 bits */
    y->at += 2;
    if (!hex(y, 4, &low))
      return false;
    if (low >= 0xdc00 && low < 0xe000)
      return doc_put_code(y->doc, 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00));
  }
  if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
    return YAML_FAIL(y, "a number behind a backslash is no character");
  return doc_put_code(y->doc, code);
}

/* Behind a backslash. */
static bool escape(struct yaml *y) {
  static const char letters[] = "0abt\tnvfre \"/\\N_LP";
  static const uint16_t codes[] = {0, 7, 8, 9, 9, 10, 11, 12, 13, 0x1b, ' ', '"', '/', '\\', 0x85, 0xa0, 0x2028, 0x2029};
  char c = *y->at;
  const char *known = c ? strchr(letters, c) : NULL;
  if (!known && c != 'x' && c != 'u' && c != 'U')
    return YAML_FAIL(y, "there is no '\\%.1s' in quotes", yaml_eol(c) ? "" : y->at);
  y->at++;
  if (known)
    return doc_put_code(y->doc, codes[known - letters]);
  return put_number(y, c == 'x' ? 2 : c == 'u' ? 4 : 8);
}

/* At a line's end in quotes: to the next line that has something. False: the document ends. */
static bool fold(struct yaml *y, unsigned *breaks) {
  *breaks = 0;
  while (*y->at == '\n') {
    yaml_next_line(y);
    ++*breaks;
    if (yaml_marker(y, y->at))
      return false;
    y->at += strspn(y->at, " \t");
  }
  return true;
}

bool yaml_quoted(struct yaml *y, struct doc_text *out) {
  struct doc *doc = y->doc;
  size_t from = doc->text_used, kept = from; /* blanks before a line's end are dropped, back to `kept` */
  unsigned begin = y->line, breaks;
  char quote = *y->at++;
  for (;;) {
    char c = *y->at;
    bool good = true;
    if (c == quote && !(quote == '\'' && y->at[1] == '\'')) {
      y->at++;
      return doc_text(doc, from, out);
    }
    if (c == 0 || (c == '\n' && (doc->text_used = kept, !fold(y, &breaks))))
      return doc_fail(doc, begin, "the text in quotes that begins here has no end");
    if (c == '\n') {
      good = yaml_put_breaks(doc, breaks);
    } else if (c == '\\' && quote == '"' && y->at[1] == '\n') {
      y->at++;
      kept = doc->text_used;
      if (!fold(y, &breaks))
        return doc_fail(doc, begin, "the text in quotes that begins here has no end");
      for (; breaks > 1 && good; breaks--)
        good = doc_put(doc, "\n", 1);
    } else if (c == '\\' && quote == '"') {
      y->at++;
      good = escape(y);
      kept = doc->text_used;
    } else {
      y->at += c == '\'' && quote == '\'';
      good = doc_put(doc, y->at++, 1);
      kept = yaml_blank(c) ? kept : doc->text_used;
    }
    if (!good)
      return false;
    if (c == '\n')
      kept = doc->text_used;
  }
}

/* --- blocks --- */

struct header {
  bool folded;
  char chomp;      /* '-', '+', or 0 */
  unsigned indent; /* 0: that of the first line */
};

static bool read_header(struct yaml *y, struct header *h) {
  *h = (struct header){.folded = *y->at == '>'};
  for (y->at++; !yaml_gap(*y->at); y->at++) {
    if ((*y->at == '-' || *y->at == '+') && !h->chomp)
      h->chomp = *y->at;
    else if (*y->at >= '1' && *y->at <= '9' && !h->indent)
      h->indent = (unsigned)(*y->at - '0');
    else
      return YAML_FAIL(y, "behind '|' or '>' only '+', '-' and a digit are allowed");
  }
  y->at += strspn(y->at, " \t");
  if (yaml_comment(y, y->at))
    y->at += strcspn(y->at, "\n");
  return yaml_eol(*y->at) || YAML_FAIL(y, "a text behind '|' or '>' begins in the next line");
}

/* Columns that the first line with something in it is indented by. */
static int first_indent(const char *at) {
  for (;;) {
    size_t n = strspn(at, " ");
    if (at[n] != '\n')
      return (int)n;
    at += n + 1;
  }
}

/* Line ends between two lines of a text: as they are, or folded where neither line begins with a blank. */
static bool put_between(struct doc *doc, const struct header *h, unsigned breaks, bool fold_them) {
  if (h->folded && fold_them)
    return yaml_put_breaks(doc, breaks);
  for (; breaks; breaks--)
    if (!doc_put(doc, "\n", 1))
      return false;
  return true;
}

/* The lines of a block, from the beginning of the first; *breaks: line ends that follow the last one. */
static bool put_block(struct yaml *y, const struct header *h, int indent, unsigned *breaks) {
  bool any = false, was_blank = false;
  *breaks = 0;
  while (*y->at && !yaml_marker(y, y->at)) {
    size_t spaces = strspn(y->at, " ");
    size_t skip = spaces < (size_t)indent ? spaces : (size_t)indent;
    const char *text = y->at + skip;
    size_t len = strcspn(text, "\n");
    if (len && skip < (size_t)indent) {
      if (*text == '\t' && text[strspn(text, " \t")] != '\n' && text[strspn(text, " \t")] != 0)
        return YAML_FAIL(y, "a tab stands in the indentation; use spaces");
      break;
    }
    if (len) {
      bool blank = yaml_blank(*text);
      if (!put_between(y->doc, h, *breaks, any && !blank && !was_blank) || !doc_put(y->doc, text, len))
        return false;
      *breaks = 0;
      any = true;
      was_blank = blank;
    }
    y->at = text + len;
    if (*y->at == '\n') {
      ++*breaks;
      yaml_next_line(y);
    }
  }
  if (!any && h->chomp != '+')
    *breaks = 0;
  return true;
}

struct doc_node *yaml_block_text(struct yaml *y, int parent) {
  struct doc_node *node = doc_node(y->doc, DOC_TEXT, y->line);
  struct header h;
  unsigned breaks = 0;
  size_t from = y->doc->text_used;
  if (!node || !read_header(y, &h))
    return NULL;
  if (*y->at == '\n') {
    yaml_next_line(y);
    int base = parent < 0 ? 0 : parent, indent = h.indent ? base + (int)h.indent : first_indent(y->at);
    if (indent <= parent) /* no line of it has anything: the empty ones count for `+` */
      indent = parent + 1;
    if (!put_block(y, &h, indent, &breaks))
      return NULL;
  }
  unsigned ends = h.chomp == '-' ? 0 : h.chomp == '+' || breaks == 0 ? breaks : 1;
  for (; ends; ends--)
    if (!doc_put(y->doc, "\n", 1))
      return NULL;
  return doc_text(y->doc, from, &node->text) ? node : NULL;
}

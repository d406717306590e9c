#include "select.h"

#include <math.h>

size_t select_rank(double q, size_t n) {
  double rank = ceil(q * (double)n);
  return rank < 1 ? 0 : rank > (double)n ? n - 1 : (size_t)rank - 1;
}

/* Hoare's selection with the middle of three as pivot; equal numbers are split in half, so only made-up input makes it slow. j ends below
 * high: of the three, one that is not less than the pivot stands before high or is exchanged with it. */
#define SELECT(type, name)                                                                                                     \
  type name(type *v, size_t from, size_t end, size_t k) {                                                                      \
    size_t low = from, high = end - 1;                                                                                         \
    while (low < high) {                                                                                                       \
      type a = v[low], b = v[low + (high - low) / 2], c = v[high];                                                             \
      type pivot = a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b);                                          \
      size_t i = low, j = high;                                                                                                \
      for (;;) {                                                                                                               \
        while (v[i] < pivot)                                                                                                   \
          i++;                                                                                                                 \
        while (v[j] > pivot)                                                                                                   \
          j--;                                                                                                                 \
        if (i >= j)                                                                                                            \
          break;                                                                                                               \
        type t = v[i];                                                                                                         \
        v[i++] = v[j];                                                                                                         \
        v[j--] = t;                                                                                                            \
      }                                                                                                                        \
      if (k <= j)                                                                                                              \
        high = j;                                                                                                              \
      else                                                                                                                     \
        low = j + 1;                                                                                                           \
    }                                                                                                                          \
    return v[k];                                                                                                               \
  }

SELECT(uint32_t, select_u32)
SELECT(uint64_t, select_u64)

/* What is to be known of one of PyTorch's tensors to read its numbers from outside. GIL held; no code of the script runs for a plain
 * tensor, and no error is left.
 */
#ifndef CIRRON_SNAPSHOT_TENSOR_H
#define CIRRON_SNAPSHOT_TENSOR_H

#include <stdbool.h>
#include <stdint.h>

#include "../proto/tensor_read.h"
#include "py.h"

struct tensor_facts {
  uint64_t address;
  int64_t elements;
  uint64_t version; /* changes when its numbers do; UINT64_MAX: it has none */
  void *dtype_is;   /* the object, for comparison */
  enum tensor_dtype dtype;
  uint8_t ndim, flags; /* SNAPSHOT_COMPLEX, SNAPSHOT_SPARSE */
  bool contiguous;
  char dtype_name[32]; /* where dtype is TENSOR_NONE */
  char reason[64];     /* why there is nothing to be read; or empty */
  int64_t shape[TENSOR_MAX_DIMS], strides[TENSOR_MAX_DIMS];
};

/* The functions that tell of tensors, once torch is there. False: it is not, or is not as we know it. */
bool tensor_ready(void);
/* Between these two no function, mode or class of the script hears of what is asked of tensors (__torch_function__): on this thread. What the
 * first gives is for the second; NULL is well, too. */
PyObject *tensor_unheard(void);
void tensor_heard(PyObject *guard);
/* Is it a tensor, or of a class made from it? */
bool tensor_is(PyObject *object);

/* Is it of PyTorch's own classes, so that there is memory where it says? */
bool tensor_is_exact(PyObject *object);

/* All of it. False: it is no tensor, or has more dimensions than we take. Of a sparse one, the values that are stored. */
bool tensor_facts(PyObject *tensor, struct tensor_facts *out);

/* Where PyTorch keeps what it knows of a tensor: sizes, strides, type, storage, as so many bytes that are the same as long as these are.
 * To ask for each of them by its own name takes longer than to look at all. NULL: not for this tensor. It is good as long as the
 * tensor lives. */
const void *tensor_body(PyObject *tensor);
uint64_t tensor_body_hash(const void *body);                  /* never 0 */
bool tensor_bodies_like(const void *body, const void *other); /* the same, but for the storage */
void tensor_body_fetch(const void *body);                     /* soon it will be looked at; may be gone by now */

/* For a tensor that was asked before: where its numbers are (0: not there), how many, and their version. */
bool tensor_where(PyObject *tensor, uint64_t *address, int64_t *elements);
uint64_t tensor_version(PyObject *tensor);
uint64_t tensor_address(PyObject *tensor); /* 0: not there */
/* Its gradient: a new reference; NULL: it has none. */
PyObject *tensor_grad(PyObject *tensor);
/* Is it dense, in C order, and of this type? For gradients, which are mostly like what they are of. */
bool tensor_plain(PyObject *tensor, const void *dtype_is);

/* A copy in host memory: new reference, or NULL without an error. */
PyObject *tensor_to_host(PyObject *tensor);

#endif

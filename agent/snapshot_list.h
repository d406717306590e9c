/* Which tensors a snapshot is of, as a list that is kept from one snapshot to the next, because most of what it says stays as it is.
 *
 * GIL held. Tensors and gradients are held from the listing until list_let_go, because scripts drop them when they like; but no longer than
 * their model lives. No error is left.
 */
#ifndef CIRRON_SNAPSHOT_LIST_H
#define CIRRON_SNAPSHOT_LIST_H

#include "snapshot_tensor.h"

/* A tensor of its own description: a gradient that is not like its tensor. */
struct list_odd {
  struct tensor_facts facts;
};

struct list_item {
  PyObject *tensor; /* owned while `held`; otherwise for comparison alone */
  PyObject *grad;   /* owned, or NULL */
  const void *type; /* of the tensor's class */
  const void *body; /* of the tensor, and what it was like; or NULL */
  uint64_t body_hash;
  void *dtype_is;
  uint64_t address, version, grad_address, grad_version;
  uint64_t sample, grad_sample; /* of list_hold() */
  int64_t elements;
  struct list_odd *odd;           /* owned; of the gradient, or NULL: it is like the tensor */
  uint32_t name, name_len, model; /* text: offset in list_text(); which of the models */
  uint32_t dims;                  /* shape, then strides where it is not contiguous: index into list_dims() */
  uint32_t dtype_name, reason;    /* text that ends with 0, or 0 */
  uint32_t at_name, at_grad, at_shape, at_strides, at_dtype_name, at_reason; /* where the area has it */
  uint8_t dtype, ndim, flags;
  bool contiguous, torn, grad_torn;
  bool has_grad; /* it had one at the listing */
  bool held;     /* the tensor is owned */
  bool sampled;  /* list_sample() was there */
};

/* Lists what there is now. 0; -ENOENT: there is no model; or another negative errno. May run code of the script where a model is of
 * an unusual kind. */
int list_make(void);

struct list_item *list_items(uint32_t *count, uint32_t *gradients);
uint64_t list_text_number(void); /* another one when names or shapes are not what they were */
const char *list_text(void);
const int64_t *list_dims(void);
const char *list_model(uint32_t model);
uint32_t list_model_done(uint32_t model); /* how many entries had been read when it went; UINT32_MAX: it lives */
uint32_t list_models(void);
size_t list_area_text(void); /* bytes that its text takes in an area, at most */
bool list_own(
    void); /* some of it can be read by this process alone: it lies on a device, or is an array of another framework */

/* The numbers of an item that no other process can read, in host memory: an object to be given back, and the facts; NULL: there are none. */
PyObject *list_values(const struct list_item *item, bool gradient, struct tensor_facts *facts);

/* For somebody who reads from now on: some of their numbers are remembered, so that it can be seen whether they change. */
void list_sample(void);
/* Looks which tensors, or gradients, are not what they were at the listing. Not those of a model that is gone. */
void list_look_gradients(void);
void list_look_tensors(void);

/* Does a tensor still have the gradient that was listed? Then what is added to it next changes that. */
bool list_gradients_in_use(void);

/* Nobody reads any more, of gradients or at all: gives back what is held. */
void list_let_go_gradients(void);
void list_let_go(void);

void list_forget(void); /* in the child of a fork, or for another session */

#endif

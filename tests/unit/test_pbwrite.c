// links: agent/pbwrite.c
/* What the agent encodes by hand is read back by the generated protobuf-c code, field by field. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "agent/pbwrite.h"
#include "proto/cirron.pb-c.h"

static void assert_bytes(ProtobufCBinaryData data, const char *text, size_t len) {
  assert_int_equal(data.len, len);
  assert_memory_equal(data.data, text, len);
}

static Cirron__Envelope *unpack(const struct pbwrite *pb) {
  Cirron__Envelope *envelope = cirron__envelope__unpack(NULL, pbwrite_len(pb), pb->buf);
  assert_non_null(envelope);
  return envelope;
}

static void hello_fields_come_back(void **state) {
  (void)state;
  uint8_t buf[1024];
  struct pbwrite pb;
  pbwrite_init(&pb, buf, sizeof(buf));
  size_t hello = pbwrite_begin(&pb, 1);
  pbwrite_uint(&pb, 1, 1);
  pbwrite_uint(&pb, 2, 300);
  pbwrite_text(&pb, 3, "0.1.0");
  pbwrite_fixed64(&pb, 4, 0xfedcba9876543210u);
  pbwrite_uint(&pb, 5, UINT32_MAX);
  pbwrite_uint(&pb, 6, 127);
  pbwrite_bytes(&pb, 7, "h\0st", 4);
  pbwrite_text(&pb, 8, "/usr/bin/python3");
  pbwrite_element(&pb, 9, "python3", 7);
  pbwrite_element(&pb, 9, "", 0);
  pbwrite_element(&pb, 9, "\xff\xfe", 2);
  pbwrite_text(&pb, 10, "/tmp");
  pbwrite_text(&pb, 11, "3.11.7");
  pbwrite_int(&pb, 12, -1);
  pbwrite_int(&pb, 13, 0);
  pbwrite_int(&pb, 14, INT32_MAX);
  pbwrite_text(&pb, 15, "run");
  for (int i = 0; i < 2; i++) {
    size_t attribute = pbwrite_begin(&pb, 16);
    pbwrite_text(&pb, 1, i ? "B" : "A");
    pbwrite_text(&pb, 2, i ? NULL : "value");
    pbwrite_end(&pb, attribute);
  }
  pbwrite_uint(&pb, 17, UINT64_MAX);
  pbwrite_uint(&pb, 18, 128);
  pbwrite_uint(&pb, 19, 16383);
  pbwrite_uint(&pb, 20, 16384);
  pbwrite_end(&pb, hello);

  Cirron__Envelope *envelope = unpack(&pb);
  assert_int_equal(envelope->body_case, CIRRON__ENVELOPE__BODY_HELLO);
  const Cirron__Hello *h = envelope->hello;
  assert_int_equal(h->abi_major, 1);
  assert_int_equal(h->abi_minor, 300);
  assert_bytes(h->agent_version, "0.1.0", 5);
  assert_true(h->session == 0xfedcba9876543210u);
  assert_true(h->pid == UINT32_MAX);
  assert_int_equal(h->ppid, 127);
  assert_bytes(h->host, "h\0st", 4);
  assert_bytes(h->exe, "/usr/bin/python3", 16);
  assert_int_equal(h->n_argv, 3);
  assert_bytes(h->argv[0], "python3", 7);
  assert_int_equal(h->argv[1].len, 0);
  assert_bytes(h->argv[2], "\xff\xfe", 2);
  assert_bytes(h->cwd, "/tmp", 4);
  assert_bytes(h->python_version, "3.11.7", 6);
  assert_int_equal(h->rank, -1);
  assert_int_equal(h->local_rank, 0);
  assert_int_equal(h->world_size, INT32_MAX);
  assert_bytes(h->run_id, "run", 3);
  assert_int_equal(h->n_attributes, 2);
  assert_bytes(h->attributes[0]->name, "A", 1);
  assert_bytes(h->attributes[0]->value, "value", 5);
  assert_bytes(h->attributes[1]->name, "B", 1);
  assert_int_equal(h->attributes[1]->value.len, 0);
  assert_true(h->anchor_monotonic_ns == UINT64_MAX);
  assert_int_equal(h->anchor_realtime_ns, 128);
  assert_int_equal(h->start_monotonic_ns, 16383);
  assert_int_equal(h->process_start_ticks, 16384);
  assert_null(h->base.unknown_fields);

  /* The same message by the library has the same bytes: ours is canonical. */
  uint8_t again[1024];
  assert_int_equal(cirron__envelope__pack(envelope, again), pbwrite_len(&pb));
  assert_memory_equal(again, buf, pbwrite_len(&pb));
  cirron__envelope__free_unpacked(envelope, NULL);
}

static void long_messages_get_long_lengths(void **state) {
  (void)state;
  static uint8_t buf[20000];
  static char text[16500];
  memset(text, 'x', sizeof(text));
  static const size_t lens[] = {120, 130, 16000, 16376, 16500};
  for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
    struct pbwrite pb;
    pbwrite_init(&pb, buf, sizeof(buf));
    size_t hello = pbwrite_begin(&pb, 1);
    pbwrite_bytes(&pb, 8, text, lens[i]);
    pbwrite_end(&pb, hello);
    Cirron__Envelope *envelope = unpack(&pb);
    assert_bytes(envelope->hello->exe, text, lens[i]);
    cirron__envelope__free_unpacked(envelope, NULL);
  }
}

static void empty_message_is_there(void **state) {
  (void)state;
  uint8_t buf[8];
  struct pbwrite pb;
  pbwrite_init(&pb, buf, sizeof(buf));
  pbwrite_end(&pb, pbwrite_begin(&pb, 3));
  Cirron__Envelope *envelope = unpack(&pb);
  assert_int_equal(envelope->body_case, CIRRON__ENVELOPE__BODY_GOODBYE);
  assert_int_equal(envelope->goodbye->reason, 0);
  cirron__envelope__free_unpacked(envelope, NULL);
}

/* Whatever the room is: either the whole message or nothing, and not a byte beyond. */
static void overflow_is_noticed(void **state) {
  (void)state;
  for (size_t size = 0; size <= 24; size++) {
    uint8_t buf[25];
    struct pbwrite pb;
    memset(buf, 0xaa, sizeof(buf));
    pbwrite_init(&pb, buf, size);
    size_t begin = pbwrite_begin(&pb, 1);
    pbwrite_fixed64(&pb, 4, 7);
    pbwrite_text(&pb, 3, "12345");
    pbwrite_int(&pb, 12, 5);
    pbwrite_end(&pb, begin);
    assert_int_equal(pbwrite_len(&pb), size >= 20 ? 20 : 0);
    assert_int_equal(buf[size], 0xaa);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(hello_fields_come_back),
      cmocka_unit_test(long_messages_get_long_lengths),
      cmocka_unit_test(empty_message_is_there),
      cmocka_unit_test(overflow_is_noticed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

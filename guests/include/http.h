/* HTTP requests over `wasi:http` without a library, for guests written in C by hand. */
#ifndef HTTP_H
#define HTTP_H

#include "cabi.h"

#define TYPES "wasi:http/types@0.2.0"
#define REQUEST "[method]outgoing-request."
#define FUTURE "[method]future-incoming-response."

enum { HTTP = 0, SOME = 1, POST = 2 };

/* Of `handle`: an error-code holds a u64, so what follows the discriminant stands at 8. */
typedef struct {
    _Alignas(8) uint8_t failed;
    _Alignas(8) uint32_t future;
    uint8_t rest[28];
} handled_t;

/* option<result<result<incoming-response, error-code>>> */
typedef struct {
    _Alignas(8) uint8_t there;
    _Alignas(8) uint8_t taken;
    _Alignas(8) uint8_t failed;
    _Alignas(8) uint32_t response;
    uint8_t rest[28];
} got_t;

typedef struct {
    uint8_t failed;
    uint32_t handle;
} made_t;

typedef struct {
    uint8_t failed;
    union {
        struct {
            const unsigned char *bytes;
            uint32_t length;
        };
        struct {
            uint8_t closed;
            uint32_t error;
        };
    };
} read_t;

typedef struct {
    uint32_t *items;
    uint32_t length;
} indices_t;

IMPORT(TYPES, "[constructor]fields")
uint32_t new_fields(void);

IMPORT(TYPES, "[constructor]outgoing-request")
uint32_t new_request(uint32_t fields);

IMPORT(TYPES, REQUEST "set-method")
uint32_t set_method(uint32_t self, uint32_t method, const char *, uint32_t);

IMPORT(TYPES, REQUEST "set-scheme")
uint32_t set_scheme(uint32_t self, uint32_t some, uint32_t scheme, const char *, uint32_t);

IMPORT(TYPES, REQUEST "set-authority")
uint32_t set_authority(uint32_t self, uint32_t some, const char *text, uint32_t length);

IMPORT(TYPES, REQUEST "set-path-with-query")
uint32_t set_path(uint32_t self, uint32_t some, const char *text, uint32_t length);

IMPORT("wasi:http/outgoing-handler@0.2.0", "handle")
void handle(uint32_t request, uint32_t some, uint32_t options, handled_t *result);

IMPORT(TYPES, FUTURE "subscribe")
uint32_t subscribe(uint32_t self);

IMPORT(TYPES, FUTURE "get")
void get(uint32_t self, got_t *result);

IMPORT(TYPES, "[resource-drop]future-incoming-response")
void drop_future(uint32_t self);

IMPORT(TYPES, "[method]incoming-response.status")
uint32_t status(uint32_t self);

IMPORT(TYPES, "[method]incoming-response.consume")
void consume(uint32_t self, made_t *result);

IMPORT(TYPES, "[resource-drop]incoming-response")
void drop_response(uint32_t self);

IMPORT(TYPES, "[method]incoming-body.stream")
void body_stream(uint32_t self, made_t *result);

IMPORT(TYPES, "[resource-drop]incoming-body")
void drop_body(uint32_t self);

IMPORT("wasi:io/streams@0.2.0", "[method]input-stream.blocking-read")
void blocking_read(uint32_t self, uint64_t count, read_t *result);

IMPORT("wasi:io/streams@0.2.0", "[resource-drop]input-stream")
void drop_stream(uint32_t self);

IMPORT("wasi:io/error@0.2.0", "[resource-drop]error")
void drop_error(uint32_t self);

IMPORT("wasi:io/poll@0.2.0", "poll")
void poll(const uint32_t *pollables, uint32_t length, indices_t *result);

IMPORT("wasi:io/poll@0.2.0", "[resource-drop]pollable")
void drop_pollable(uint32_t self);

static inline bool begins_with(string_t text, string_t start) {
    uint32_t same = 0;
    while (same < start.length && same < text.length && text.bytes[same] == start.bytes[same])
        same++;
    return same == start.length;
}

/* A request, or 0 if it cannot be made. */
static inline uint32_t request_to(string_t url) {
    const string_t scheme = LITERAL("http://");
    if (!begins_with(url, scheme))
        return 0;
    string_t host = {url.bytes + scheme.length, 0};
    while (scheme.length + host.length < url.length && host.bytes[host.length] != '/')
        host.length++;
    string_t path = {host.bytes + host.length, url.length - scheme.length - host.length};
    uint32_t request = new_request(new_fields());
    if (set_scheme(request, SOME, HTTP, NULL, 0) ||
        set_authority(request, SOME, host.bytes, host.length) ||
        set_path(request, SOME, path.bytes, path.length))
        __builtin_trap();
    return request;
}

/* The future of a request, or 0 if it is refused. */
static inline uint32_t future_of(uint32_t request) {
    handled_t handled;
    handle(request, !SOME, 0, &handled);
    return handled.failed ? 0 : handled.future;
}

#endif

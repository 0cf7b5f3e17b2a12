/* Talks to peers over TCP and UDP: wasi:sockets without a libc. */
#include "text.h"

#define API "demo:courier/post"
#define STREAMS "wasi:io/streams@0.2.0"
#define POLL "wasi:io/poll@0.2.0"
#define TCP "wasi:sockets/tcp@0.2.0"
#define UDP "wasi:sockets/udp@0.2.0"
#define LOOKUP "wasi:sockets/ip-name-lookup@0.2.0"
#define NETWORK "wasi:sockets/network@0.2.0"

#define WRITE_BYTES_MAX 4096u
#define WOULD_BLOCK 8u

static const char *const CODES[] = {
    "unknown", "access-denied", "not-supported", "invalid-argument", "out-of-memory", "timeout",
    "concurrency-conflict", "not-in-progress", "would-block", "invalid-state", "new-socket-limit",
    "address-not-bindable", "address-in-use", "remote-unreachable", "connection-refused",
    "connection-reset", "connection-aborted", "datagram-too-large", "name-unresolvable",
    "temporary-resolver-failure", "permanent-resolver-failure",
};
#define CODES_COUNT (sizeof CODES / sizeof CODES[0])
#define CLOSED CODES_COUNT
#define SAID (CODES_COUNT + 1)

/* An error-code, CLOSED, or SAID, of a stream that says why it failed; DONE is no failure. */
typedef uint32_t failure_t;
#define DONE UINT32_MAX

/* Results that go through memory: a tag, and at 4 (or 8) what it says. */
typedef struct {
    uint8_t failed;
    uint8_t code;
} nothing_result_t;

typedef struct {
    uint8_t failed;
    union {
        uint8_t code;
        uint32_t handle;
        struct {
            uint32_t input, output;
        } pair;
        struct {
            uint8_t *items;
            uint32_t length;
        } list;
        struct {
            uint8_t closed;
            uint32_t error;
        } stream_error;
    } is;
} result_t;

typedef struct {
    uint8_t failed;
    union {
        uint8_t code;
        uint64_t count;
        struct {
            uint8_t closed;
            uint32_t error;
        } stream_error;
    } is;
} count_result_t;

typedef struct {
    uint8_t failed;
    union {
        uint8_t code;
        struct {
            uint8_t is_some;
            struct {
                uint8_t is_ipv6;
                union {
                    uint8_t ipv4[4];
                    uint16_t ipv6[8];
                } is;
            } address;
        } option;
    } is;
} address_result_t;

/* An ip-socket-address of IPv4 in its flat form: the case, the port, the address, and what only
 * IPv6 needs. */
#define ADDRESS_PARAMETERS                                                                         \
    uint32_t tag, uint32_t port, uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t f6,      \
        uint32_t f7, uint32_t f8, uint32_t f9, uint32_t f10, uint32_t f11
#define IPV4(port, address) 0, port, (address)[0], (address)[1], (address)[2], (address)[3],       \
    0, 0, 0, 0, 0, 0

/* In memory: an outgoing datagram whose address is the one that its stream has. */
typedef struct {
    const char *bytes;
    uint32_t length;
    uint8_t has_address;
    uint8_t address[35];
} outgoing_t;

typedef struct {
    const char *bytes;
    uint32_t length;
    uint8_t address[32];
} incoming_t;

_Static_assert(sizeof(outgoing_t) == 44, "two words, and 36 bytes of an address");
_Static_assert(sizeof(incoming_t) == 40, "two words, and 32 bytes of an address");
_Static_assert(sizeof(address_result_t) == 22, "the tag, the option, the variant, 16 bytes");
_Static_assert(sizeof(result_t) == 12, "the tag, and two words");

IMPORT("wasi:sockets/instance-network@0.2.0", "instance-network")
uint32_t instance_network(void);
IMPORT(NETWORK, "[resource-drop]network")
void network_drop(uint32_t network);
IMPORT("wasi:io/error@0.2.0", "[method]error.to-debug-string")
void error_text(uint32_t error, string_t *result);
IMPORT("wasi:io/error@0.2.0", "[resource-drop]error")
void error_drop(uint32_t error);

IMPORT(POLL, "[method]pollable.block")
void pollable_block(uint32_t pollable);
IMPORT(POLL, "[resource-drop]pollable")
void pollable_drop(uint32_t pollable);

IMPORT(LOOKUP, "resolve-addresses")
void resolve_addresses(uint32_t network, const char *name, uint32_t length, result_t *result);
IMPORT(LOOKUP, "[method]resolve-address-stream.resolve-next-address")
void resolve_next_address(uint32_t stream, address_result_t *result);
IMPORT(LOOKUP, "[method]resolve-address-stream.subscribe")
uint32_t addresses_subscribe(uint32_t stream);
IMPORT(LOOKUP, "[resource-drop]resolve-address-stream")
void addresses_drop(uint32_t stream);

IMPORT("wasi:sockets/tcp-create-socket@0.2.0", "create-tcp-socket")
void create_tcp_socket(uint32_t family, result_t *result);
IMPORT(TCP, "[method]tcp-socket.start-connect")
void start_connect(uint32_t socket, uint32_t network, ADDRESS_PARAMETERS, nothing_result_t *result);
IMPORT(TCP, "[method]tcp-socket.finish-connect")
void finish_connect(uint32_t socket, result_t *result);
IMPORT(TCP, "[method]tcp-socket.subscribe")
uint32_t tcp_subscribe(uint32_t socket);
IMPORT(TCP, "[method]tcp-socket.shutdown")
void tcp_shutdown(uint32_t socket, uint32_t direction, nothing_result_t *result);
IMPORT(TCP, "[resource-drop]tcp-socket")
void tcp_drop(uint32_t socket);

IMPORT(STREAMS, "[method]input-stream.blocking-read")
void stream_read(uint32_t stream, uint64_t count, result_t *result);
IMPORT(STREAMS, "[method]output-stream.blocking-write-and-flush")
void stream_write(uint32_t stream, const char *bytes, uint32_t length, result_t *result);
IMPORT(STREAMS, "[method]output-stream.check-write")
void stream_check_write(uint32_t stream, count_result_t *result);
IMPORT(STREAMS, "[method]output-stream.write")
void stream_write_some(uint32_t stream, const char *bytes, uint32_t length, result_t *result);
IMPORT(STREAMS, "[resource-drop]input-stream")
void input_drop(uint32_t stream);
IMPORT(STREAMS, "[resource-drop]output-stream")
void output_drop(uint32_t stream);

IMPORT("wasi:sockets/udp-create-socket@0.2.0", "create-udp-socket")
void create_udp_socket(uint32_t family, result_t *result);
IMPORT(UDP, "[method]udp-socket.start-bind")
void udp_start_bind(uint32_t socket, uint32_t network, ADDRESS_PARAMETERS,
                    nothing_result_t *result);
IMPORT(UDP, "[method]udp-socket.finish-bind")
void udp_finish_bind(uint32_t socket, nothing_result_t *result);
IMPORT(UDP, "[method]udp-socket.stream")
void udp_stream(uint32_t socket, uint32_t is_some, ADDRESS_PARAMETERS, result_t *result);
IMPORT(UDP, "[resource-drop]udp-socket")
void udp_drop(uint32_t socket);
IMPORT(UDP, "[method]incoming-datagram-stream.receive")
void udp_receive(uint32_t stream, uint64_t count, result_t *result);
IMPORT(UDP, "[method]incoming-datagram-stream.subscribe")
uint32_t incoming_subscribe(uint32_t stream);
IMPORT(UDP, "[resource-drop]incoming-datagram-stream")
void incoming_drop(uint32_t stream);
IMPORT(UDP, "[method]outgoing-datagram-stream.check-send")
void udp_check_send(uint32_t stream, count_result_t *result);
IMPORT(UDP, "[method]outgoing-datagram-stream.send")
void udp_send(uint32_t stream, const outgoing_t *items, uint32_t length, count_result_t *result);
IMPORT(UDP, "[resource-drop]outgoing-datagram-stream")
void outgoing_drop(uint32_t stream);

static const uint8_t LOOPBACK[4] = {127, 0, 0, 1};
static const uint8_t ANY[4] = {0, 0, 0, 0};

typedef struct {
    uint32_t socket, input, output;
    bool is_open;
} connection_t;

static connection_t kept;

/* An answer: ok with a text, or an error with the name of a failure. */
typedef struct {
    uint8_t failed;
    string_t text;
} answer_t;

static answer_t answer;
static string_t said;

static answer_t *ok(string_t text) {
    answer.failed = 0;
    answer.text = text;
    return &answer;
}

static answer_t *failed(failure_t failure) {
    const char *name = failure < CODES_COUNT ? CODES[failure] : "closed";
    uint32_t length = 0;
    while (name[length] != 0)
        length++;
    answer.failed = 1;
    answer.text = failure == SAID ? said : (string_t){name, length};
    return &answer;
}

static void wait_for(uint32_t pollable) {
    pollable_block(pollable);
    pollable_drop(pollable);
}

static failure_t stream_failure(bool closed, uint32_t error) {
    if (closed)
        return CLOSED;
    error_text(error, &said);
    error_drop(error);
    return SAID;
}

/* The first IPv4 address of a host. */
static failure_t look_up(uint32_t network, string_t host, uint8_t address[4]) {
    result_t begun;
    address_result_t next;
    failure_t failure = 18; /* name-unresolvable */
    resolve_addresses(network, host.bytes, host.length, &begun);
    if (begun.failed)
        return begun.is.code;
    for (;;) {
        resolve_next_address(begun.is.handle, &next);
        if (next.failed && next.is.code == WOULD_BLOCK) {
            wait_for(addresses_subscribe(begun.is.handle));
        } else if (next.failed) {
            failure = next.is.code;
            break;
        } else if (!next.is.option.is_some) {
            break;
        } else if (!next.is.option.address.is_ipv6) {
            copy_bytes(address, next.is.option.address.is.ipv4, 4);
            failure = DONE;
            break;
        }
    }
    addresses_drop(begun.is.handle);
    return failure;
}

static void hang_up(connection_t *connection) {
    if (connection->is_open) {
        input_drop(connection->input);
        output_drop(connection->output);
        tcp_drop(connection->socket);
        connection->is_open = false;
    }
}

static failure_t call(uint32_t network, const uint8_t address[4], uint16_t port,
                      connection_t *connection) {
    result_t made;
    nothing_result_t begun;
    create_tcp_socket(0, &made);
    if (made.failed)
        return made.is.code;
    connection->socket = made.is.handle;
    start_connect(connection->socket, network, IPV4(port, address), &begun);
    if (begun.failed) {
        tcp_drop(connection->socket);
        return begun.code;
    }
    finish_connect(connection->socket, &made);
    while (made.failed && made.is.code == WOULD_BLOCK) {
        wait_for(tcp_subscribe(connection->socket));
        finish_connect(connection->socket, &made);
    }
    if (made.failed) {
        tcp_drop(connection->socket);
        return made.is.code;
    }
    connection->input = made.is.pair.input;
    connection->output = made.is.pair.output;
    connection->is_open = true;
    return DONE;
}

static failure_t send_text(const connection_t *connection, string_t text) {
    result_t result;
    for (uint32_t sent = 0; sent < text.length;) {
        uint32_t length = text.length - sent;
        if (length > WRITE_BYTES_MAX)
            length = WRITE_BYTES_MAX;
        stream_write(connection->output, text.bytes + sent, length, &result);
        if (result.failed)
            return stream_failure(result.is.stream_error.closed, result.is.stream_error.error);
        sent += length;
    }
    return DONE;
}

/* Until there are `count` bytes, or the peer ends. */
static failure_t receive_text(const connection_t *connection, uint32_t count, text_t *text) {
    result_t result;
    while (text->length < count) {
        stream_read(connection->input, count - text->length, &result);
        if (result.failed)
            return stream_failure(result.is.stream_error.closed, result.is.stream_error.error);
        text_add(text, (string_t){(const char *)result.is.list.items, result.is.list.length});
    }
    return DONE;
}

EXPORT(API "#ask")
answer_t *api_ask(const char *host, uint32_t host_length, uint32_t port, const char *question,
                  uint32_t length) {
    uint8_t address[4];
    connection_t connection = {0};
    nothing_result_t ended;
    text_t text = {0};
    uint32_t network = instance_network();
    failure_t failure = look_up(network, (string_t){host, host_length}, address);
    if (failure == DONE)
        failure = call(network, address, (uint16_t)port, &connection);
    network_drop(network);
    if (failure == DONE)
        failure = send_text(&connection, (string_t){question, length});
    if (failure == DONE) {
        tcp_shutdown(connection.socket, 1, &ended);
        failure = receive_text(&connection, UINT32_MAX, &text);
    }
    hang_up(&connection);
    return failure == CLOSED ? ok(text_done(&text)) : failed(failure);
}

EXPORT("cabi_post_" API "#ask")
void api_ask_done(answer_t *done) {
    (void)done;
    arena_reset();
}

EXPORT(API "#dial")
answer_t *api_dial(uint32_t port) {
    uint32_t network = instance_network();
    hang_up(&kept);
    failure_t failure = call(network, LOOPBACK, (uint16_t)port, &kept);
    network_drop(network);
    return failure == DONE ? ok((string_t){0, 0}) : failed(failure);
}

EXPORT("cabi_post_" API "#dial")
void api_dial_done(answer_t *done) {
    api_ask_done(done);
}

EXPORT(API "#say")
answer_t *api_say(const char *bytes, uint32_t length) {
    text_t text = {0};
    if (!kept.is_open)
        return failed(9); /* invalid-state */
    failure_t failure = send_text(&kept, (string_t){bytes, length});
    if (failure == DONE)
        failure = receive_text(&kept, length, &text);
    if (failure == DONE)
        return ok(text_done(&text));
    hang_up(&kept);
    return failed(failure);
}

EXPORT("cabi_post_" API "#say")
void api_say_done(answer_t *done) {
    api_ask_done(done);
}

EXPORT(API "#leave")
answer_t *api_leave(uint32_t port, const char *bytes, uint32_t length) {
    connection_t connection = {0};
    count_result_t room;
    result_t written;
    uint32_t network = instance_network();
    failure_t failure = call(network, LOOPBACK, (uint16_t)port, &connection);
    network_drop(network);
    if (failure == DONE) {
        stream_check_write(connection.output, &room);
        if (room.failed)
            failure = stream_failure(room.is.stream_error.closed, room.is.stream_error.error);
        else if (room.is.count < length)
            failure = WOULD_BLOCK;
        else
            stream_write_some(connection.output, bytes, length, &written);
    }
    hang_up(&connection);
    return failure == DONE ? ok((string_t){0, 0}) : failed(failure);
}

EXPORT("cabi_post_" API "#leave")
void api_leave_done(answer_t *done) {
    api_ask_done(done);
}

static failure_t exchange(uint32_t incoming, uint32_t outgoing, string_t sent, string_t *got) {
    count_result_t count;
    result_t received;
    outgoing_t datagram = {sent.bytes, sent.length, 0, {0}};
    udp_check_send(outgoing, &count);
    if (!count.failed)
        udp_send(outgoing, &datagram, 1, &count);
    if (count.failed)
        return count.is.code;
    for (;;) {
        udp_receive(incoming, 1, &received);
        if (received.failed)
            return received.is.code;
        if (received.is.list.length != 0)
            break;
        wait_for(incoming_subscribe(incoming));
    }
    const incoming_t *first = (const incoming_t *)received.is.list.items;
    *got = (string_t){first->bytes, first->length};
    return DONE;
}

EXPORT(API "#ping")
answer_t *api_ping(uint32_t port, const char *bytes, uint32_t length) {
    result_t made, streams;
    nothing_result_t bound;
    string_t got = {0, 0};
    create_udp_socket(0, &made);
    if (made.failed)
        return failed(made.is.code);
    uint32_t network = instance_network();
    udp_start_bind(made.is.handle, network, IPV4(0, ANY), &bound);
    network_drop(network);
    failure_t failure = bound.failed ? bound.code : DONE;
    if (failure == DONE) {
        udp_finish_bind(made.is.handle, &bound);
        udp_stream(made.is.handle, 1, IPV4(port, LOOPBACK), &streams);
        failure = streams.failed ? streams.is.code : DONE;
    }
    if (failure == DONE) {
        failure = exchange(streams.is.pair.input, streams.is.pair.output,
                           (string_t){bytes, length}, &got);
        incoming_drop(streams.is.pair.input);
        outgoing_drop(streams.is.pair.output);
    }
    udp_drop(made.is.handle);
    return failure == DONE ? ok(got) : failed(failure);
}

EXPORT("cabi_post_" API "#ping")
void api_ping_done(answer_t *done) {
    api_ask_done(done);
}

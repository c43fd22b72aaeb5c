/*
 * A small blocking client for the tests, written apart from what it tests: HTTP/1.1 and RFC 6455
 * over OpenSSL or plain sockets. Every read gives up after five minutes.
 */
#ifndef PP_OPERATOR_HTTP_TESTS_CLIENT_H
#define PP_OPERATOR_HTTP_TESTS_CLIENT_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct client {
    int fd;
    SSL *ssl; /* NULL: plain */
} client;

typedef struct response {
    int status; /* 0: the connection ended without one */
    char head[2048];
    char *body; /* owned, NUL-terminated */
    size_t len;
} response;

/** Connects to 127.0.0.1; with a CA (PEM) over TLS, verified for localhost. False on failure. */
bool client_open(client *c, int port, const char *ca);
/** The same from an address of this machine, "127.0.0.9". */
bool client_open_from(client *c, const char *from, int port, const char *ca);
/** What is shown to servers that ask for a certificate, from now on; NULL: none. */
void client_present(X509 *certificate, EVP_PKEY *key);
void client_close(client *c);
bool client_send(client *c, const void *data, size_t n);
/** Reads up to n bytes; 0 at the end or after five minutes. */
size_t client_read(client *c, void *data, size_t n);
/** Waits until the server has ended the connection; false after five minutes, or where it sends. */
bool client_is_cut(client *c);
/** Waits so many ms for something to read; the connection's end is something. It may come back
 * earlier with false. */
bool client_readable(client *c, int ms);
/** Serial number of the server's certificate, as hex. */
void client_peer_serial(client *c, char *out, size_t size);

/** Reads one response; free its body. */
response client_response(client *c);
/** Sends a request built from parts and reads the response. */
response client_request(client *c, const char *method, const char *path, const char *headers,
                        const char *body, size_t len);
void response_free(response *r);

/** Upgrades; the status, 101 when the WebSocket stands. */
int ws_upgrade(client *c, const char *token, response *ret);
/** Opens a connection and upgrades, trying again at once where the server says so. */
int ws_connect(client *c, int port, const char *ca, const char *token);
bool ws_send(client *c, int opcode, bool final, const void *data, size_t n);
bool ws_send_text(client *c, const char *text);
/**
 * Reads one frame into data (NUL-terminated); the opcode, or -1 at the end. Pings are answered
 * and skipped, as pongs are, unless keep_pings. For a close frame *ret_code is its code.
 */
int ws_read(client *c, char *data, size_t size, int *ret_code, bool keep_pings);

#endif

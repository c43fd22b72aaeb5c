#include "operator/http_server/tests/client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static X509 *shown;
static EVP_PKEY *shown_key;

void client_present(X509 *certificate, EVP_PKEY *key)
{
    shown = certificate;
    shown_key = key;
}

static SSL_CTX *trusting(const char *ca)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    BIO *bio = BIO_new_mem_buf(ca, -1);
    X509 *cert;
    while ((cert = PEM_read_bio_X509(bio, NULL, NULL, NULL))) {
        X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), cert);
        X509_free(cert);
    }
    BIO_free(bio);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    if (shown)
        (void)SSL_CTX_use_cert_and_key(ctx, shown, shown_key, NULL, 1);
    return ctx;
}

bool client_open(client *c, int port, const char *ca)
{
    return client_open_from(c, "127.0.0.1", port, ca);
}

bool client_open_from(client *c, const char *from, int port, const char *ca)
{
    struct sockaddr_in here = {.sin_family = AF_INET};
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = 300};
    *c = (client){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    (void)setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    (void)setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    /* What was sent has arrived, but for what TLS and the kernel have to do. */
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    (void)inet_pton(AF_INET, from, &here.sin_addr);
    if (bind(c->fd, (struct sockaddr *)&here, sizeof here) < 0 ||
        connect(c->fd, (struct sockaddr *)&at, sizeof at) < 0) {
        client_close(c);
        return false;
    }
    if (!ca)
        return true;
    SSL_CTX *ctx = trusting(ca);
    c->ssl = SSL_new(ctx);
    SSL_CTX_free(ctx);
    SSL_set_fd(c->ssl, c->fd);
    char name[] = "localhost"; /* OpenSSL's macro casts const away */
    SSL_set_tlsext_host_name(c->ssl, name);
    SSL_set1_host(c->ssl, "localhost");
    static const unsigned char alpn[] = "\x02h2\x08http/1.1";
    SSL_set_alpn_protos(c->ssl, alpn, sizeof alpn - 1);
    if (SSL_connect(c->ssl) != 1) {
        client_close(c);
        return false;
    }
    return true;
}

void client_close(client *c)
{
    if (c->ssl)
        SSL_free(c->ssl);
    if (c->fd >= 0)
        close(c->fd);
    *c = (client){.fd = -1};
}

bool client_send(client *c, const void *data, size_t n)
{
    const char *at = data;
    while (n) {
        ssize_t sent = c->ssl ? SSL_write(c->ssl, at, (int)n) : send(c->fd, at, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        at += sent;
        n -= (size_t)sent;
    }
    return true;
}

size_t client_read(client *c, void *data, size_t n)
{
    ssize_t got = c->ssl ? SSL_read(c->ssl, data, (int)n) : recv(c->fd, data, n, 0);
    return got > 0 ? (size_t)got : 0;
}

bool client_is_cut(client *c)
{
    char byte;
    errno = 0;
    ssize_t got = c->ssl ? SSL_read(c->ssl, &byte, 1) : recv(c->fd, &byte, 1, 0);
    return got <= 0 && errno != EAGAIN && errno != EWOULDBLOCK;
}

/* What TLS says to itself is nothing to read. */
static bool has_text(client *c)
{
    char first;
    int flags = fcntl(c->fd, F_GETFL);
    (void)fcntl(c->fd, F_SETFL, flags | O_NONBLOCK);
    int got = SSL_peek(c->ssl, &first, 1);
    bool more = got > 0 || SSL_get_error(c->ssl, got) != SSL_ERROR_WANT_READ;
    (void)fcntl(c->fd, F_SETFL, flags);
    return more;
}

bool client_readable(client *c, int ms)
{
    struct pollfd at = {.fd = c->fd, .events = POLLIN};
    if (!(c->ssl && SSL_pending(c->ssl)) && poll(&at, 1, ms) <= 0)
        return false;
    return !c->ssl || has_text(c);
}

void client_peer_serial(client *c, char *out, size_t size)
{
    X509 *cert = SSL_get0_peer_certificate(c->ssl);
    BIGNUM *number = ASN1_INTEGER_to_BN(X509_get0_serialNumber(cert), NULL);
    char *hex = BN_bn2hex(number);
    (void)snprintf(out, size, "%s", hex);
    OPENSSL_free(hex);
    BN_free(number);
}

static bool read_all(client *c, void *data, size_t n)
{
    char *at = data;
    while (n) {
        size_t got = client_read(c, at, n);
        if (!got)
            return false;
        at += got;
        n -= got;
    }
    return true;
}

response client_response(client *c)
{
    response r = {0};
    size_t n = 0;
    while (n < sizeof r.head - 1 && client_read(c, r.head + n, 1) == 1) {
        n++;
        if (n >= 4 && memcmp(r.head + n - 4, "\r\n\r\n", 4) == 0)
            break;
    }
    static const char version[] = "HTTP/1.1 ";
    if (strncmp(r.head, version, sizeof version - 1) != 0)
        return r;
    r.status = (int)strtol(r.head + sizeof version - 1, NULL, 10);
    const char *length = strcasestr(r.head, "Content-Length: ");
    r.len = length ? strtoul(length + 16, NULL, 10) : 0;
    r.body = calloc(1, r.len + 1);
    if (r.status != 101 && !read_all(c, r.body, r.len))
        r.status = 0;
    return r;
}

response client_request(client *c, const char *method, const char *path, const char *headers,
                        const char *body, size_t len)
{
    char head[16384];
    char length[64] = "";
    if (body)
        (void)snprintf(length, sizeof length, "Content-Length: %zu\r\n", len);
    int n = snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s%s\r\n", method,
                     path, headers, length);
    if (client_send(c, head, (size_t)n) && body)
        (void)client_send(c, body, len);
    return client_response(c);
}

void response_free(response *r)
{
    free(r->body);
    *r = (response){0};
}

int ws_upgrade(client *c, const char *token, response *ret)
{
    char headers[12288];
    (void)snprintf(headers, sizeof headers,
                   "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                   "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                   "Sec-WebSocket-Protocol: precisionprobe.v1\r\n%s%s%s",
                   token ? "Authorization: Bearer " : "", token ? token : "", token ? "\r\n" : "");
    response r = client_request(c, "GET", "/v1/ingest", headers, NULL, 0);
    int status = r.status;
    /* RFC 6455's own example: the answer to that key is known. */
    if (status == 101 && !strcasestr(r.head, "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="))
        status = -1;
    if (ret)
        *ret = r;
    else
        response_free(&r);
    return status;
}

int ws_connect(client *c, int port, const char *ca, const char *token)
{
    int status = 0;
    for (int attempt = 0; attempt < 2; attempt++) {
        response r = {0};
        if (!client_open(c, port, ca))
            return -1;
        status = ws_upgrade(c, token, &r);
        bool again = status == 503 && strcasestr(r.head, "Retry-After: 0\r\n");
        response_free(&r);
        if (!again)
            break;
        client_close(c);
    }
    return status;
}

bool ws_send(client *c, int opcode, bool final, const void *data, size_t n)
{
    unsigned char head[14] = {(unsigned char)((final ? 0x80 : 0) | opcode)};
    size_t at = 2;
    if (n < 126) {
        head[1] = (unsigned char)(0x80 | n);
    } else if (n < 65536) {
        head[1] = 0x80 | 126;
        head[at++] = (unsigned char)(n >> 8);
        head[at++] = (unsigned char)n;
    } else {
        head[1] = 0x80 | 127;
        for (int shift = 56; shift >= 0; shift -= 8)
            head[at++] = (unsigned char)((uint64_t)n >> shift);
    }
    static const unsigned char mask[4] = {0x11, 0x22, 0x33, 0x44};
    (void)memcpy(head + at, mask, 4);
    unsigned char *masked = malloc(n + 1);
    for (size_t i = 0; i < n; i++)
        masked[i] = ((const unsigned char *)data)[i] ^ mask[i % 4];
    bool ok = client_send(c, head, at + 4) && client_send(c, masked, n);
    free(masked);
    return ok;
}

bool ws_send_text(client *c, const char *text)
{
    return ws_send(c, 1, true, text, strlen(text));
}

static int read_frame(client *c, char *data, size_t size, size_t *ret_len)
{
    unsigned char head[10];
    if (!read_all(c, head, 2))
        return -1;
    size_t n = head[1] & 0x7f;
    if (n == 126) {
        if (!read_all(c, head + 2, 2))
            return -1;
        n = (size_t)head[2] << 8 | head[3];
    }
    if (n >= size || !read_all(c, data, n))
        return -1;
    data[n] = '\0';
    *ret_len = n;
    return head[0] & 0x0f;
}

int ws_read(client *c, char *data, size_t size, int *ret_code, bool keep_pings)
{
    size_t n = 0;
    for (;;) {
        int opcode = read_frame(c, data, size, &n);
        if (opcode == 9 && !keep_pings) {
            (void)ws_send(c, 10, true, data, n);
            continue;
        }
        if (opcode == 10 && !keep_pings)
            continue;
        if (opcode == 8 && ret_code)
            *ret_code = n >= 2 ? (unsigned char)data[0] << 8 | (unsigned char)data[1] : 0;
        return opcode;
    }
}

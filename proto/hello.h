// What goes over register.sock (SOCK_SEQPACKET): one hello with the segment's descriptor (SCM_RIGHTS), one welcome with
// the daemon's eventfd. The socket only adds speed: a daemon finds a segment by its name too.
#ifndef SL_PROTO_HELLO_H
#define SL_PROTO_HELLO_H

#include "proto/layout.h"

#define SL_HELLO_MAGIC     0x6f6c6c68u  // "hllo"
#define SL_WELCOME_MAGIC   0x6d6f6377u  // "wcom"
#define SL_REGISTER_SOCKET "register.sock"
#define SL_QUERY_SOCKET    "query.sock"
#define SL_HELLO_NAME      160
#define SL_HELLO_KEY       256

enum sl_welcome_status {
    SL_WELCOME_OK = 0,
    SL_WELCOME_OTHER_ABI = 1,  // the daemon speaks `abi`
    SL_WELCOME_REFUSED = 2     // quota, another user's daemon, a segment that does not hold together
};

struct sl_hello {
    uint32_t magic;
    uint32_t abi;
    uint32_t bytes;  // sizeof(struct sl_hello)
    uint32_t pid;    // for messages; identity comes from SO_PEERCRED
    uint32_t error;  // errno when no segment could be made: no descriptor then, and the name is what was tried
    uint32_t zero;
    char name[SL_HELLO_NAME];  // path of the segment, "" when it does not fit
    char run_key[SL_HELLO_KEY];  // with an error: which run misses this process
};

struct sl_welcome {
    uint32_t magic;
    uint32_t abi;
    uint32_t status;
    uint32_t daemon_pid;
};

SL_ASSERT_SIZE(sl_hello, 440);
SL_ASSERT_SIZE(sl_welcome, 16);

#endif

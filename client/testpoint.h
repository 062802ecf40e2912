// Testpoints: places where a test stops or kills the program, one after each effect that another process can see. Each is a
// nop in the code and an ELF note that names it (systemtap-sdt, `readelf -n`), always compiled in. For the library's own
// sources, before client/scoped_lane.h; in a user's program the name there stays empty.
#ifndef SL_CLIENT_TESTPOINT_H
#define SL_CLIENT_TESTPOINT_H

#include <sys/sdt.h>

#include "proto/atomic.h"

// The barriers keep the compiler from moving an effect past its testpoint.
#define SL_TESTPOINT_(name)            \
    do {                               \
        sl_compiler_barrier();         \
        STAP_PROBE(scoped_lane, name); \
        sl_compiler_barrier();         \
    } while (0)

#endif

// The inline functions of the header once more as symbols, for Fortran, Python and dlsym.
#include "client/testpoint.h"

// Calls made from one function have one frame, whichever of these it calls.
#define SL_FRAME_ (uint64_t)(uintptr_t)__builtin_dwarf_cfa()

#define sl_enter sl_enter_inline_
#define sl_exit  sl_exit_inline_
#define sl_next  sl_next_inline_
#include "client/scoped_lane.h"
#undef sl_enter
#undef sl_exit
#undef sl_next

SL_PUBLIC void sl_enter(sl_region_t region);
SL_PUBLIC void sl_exit(sl_region_t region);
SL_PUBLIC void sl_next(sl_region_t region);

void sl_enter(sl_region_t region)
{
    sl_enter_inline_(region);
}

void sl_exit(sl_region_t region)
{
    sl_exit_inline_(region);
}

void sl_next(sl_region_t region)
{
    sl_next_inline_(region);
}

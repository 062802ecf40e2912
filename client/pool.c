// Rows and blocks of the segment. Extents double, so there are few of them; a row returns to use when the daemon has marked
// it SPOOLED, which a hand that moves round finds. Everything here runs under the client's lock.
#include "client/state.h"

#define HAND_STEPS 256  // rows looked at before a new one is carved
#define HAND_RESTS 16   // rows carved without a look after one that was in vain: the daemon is behind, and each look is a cache miss

static uint32_t *state_of(const struct pool *pool, uint32_t extent, uint32_t row, uint32_t row_bytes)
{
    return AT(pool->offset[extent] + (uint64_t)row * row_bytes);  // `state` is the first word of every row
}

static void *reuse(struct pool *pool, uint32_t row_bytes)
{
    uint32_t steps = pool->total < HAND_STEPS ? pool->total : HAND_STEPS;
    for (uint32_t step = 0; step < steps; step++) {
        if (pool->hand_row >= pool->count[pool->hand_extent]) {
            pool->hand_row = 0;
            pool->hand_extent = (pool->hand_extent + 1) % pool->extents;
        }
        uint32_t *state = state_of(pool, pool->hand_extent, pool->hand_row++, row_bytes);
        if (sl_load_acquire(state) == SL_ROW_SPOOLED) {  // pairs with the daemon's release after the row is spooled
            sl_store_relaxed(state, SL_ROW_FREE);
            SL_TESTPOINT_(row_recycled);
            return state;
        }
    }
    pool->rests = HAND_RESTS;
    return NULL;
}

static bool extend(struct pool *pool, enum sl_extent_kind kind, uint32_t row_bytes, uint32_t limit)
{
    uint32_t room = sizeof pool->offset / sizeof *pool->offset;
    uint64_t size = pool->extents ? (uint64_t)pool->count[pool->extents - 1] * row_bytes * 2 : (uint64_t)4096;
    if (!pool->extents && kind == SL_EXTENT_TASKS)
        size = 64 << 10;
    if (pool->extents == room || pool->total >= limit)
        return false;
    size = (size + SL_EXTENT_ALIGN - 1) & ~(uint64_t)(SL_EXTENT_ALIGN - 1);
    uint32_t count = (uint32_t)(size / row_bytes);
    if (count > limit - pool->total)
        count = limit - pool->total;
    uint64_t offset = segment_extend(kind, pool->total, count, (uint64_t)count * row_bytes);
    if (!offset)
        return false;
    pool->offset[pool->extents] = offset;
    pool->count[pool->extents++] = count;
    pool->total += count;
    pool->carved = 0;
    SL_TESTPOINT_(rows_extended);
    return true;
}

void *pool_take(struct pool *pool, enum sl_extent_kind kind, uint32_t row_bytes, uint32_t limit)
{
    bool rests = pool->rests > 0;
    void *row = rests ? NULL : reuse(pool, row_bytes);
    if (row)
        return row;
    pool->rests -= rests;
    if (!pool->extents || pool->carved == pool->count[pool->extents - 1])
        if (!extend(pool, kind, row_bytes, limit))
            return rests ? reuse(pool, row_bytes) : NULL;
    return state_of(pool, pool->extents - 1, pool->carved++, row_bytes);
}

uint64_t blocks_take(struct blocks *blocks, enum sl_extent_kind kind, uint32_t block_bytes)
{
    uint64_t block = blocks->free;
    if (block) {
        blocks->free = *(uint64_t *)AT(block);
        SL_TESTPOINT_(block_recycled);
        return block;
    }
    if (blocks->next + block_bytes > blocks->end) {
        uint64_t size = blocks->extent_bytes ? blocks->extent_bytes : block_bytes > 4096 ? block_bytes : 4096;
        uint64_t offset = segment_extend(kind, 0, (uint32_t)(size / block_bytes), size);
        if (!offset)
            return 0;
        blocks->next = offset;
        blocks->end = offset + size / block_bytes * block_bytes;
        blocks->extent_bytes = size < 1 << 20 ? size * 2 : size;
    }
    block = blocks->next;
    blocks->next += block_bytes;
    SL_TESTPOINT_(block_carved);
    return block;
}

void blocks_give(struct blocks *blocks, uint64_t block)
{
    sl_store_relaxed((uint64_t *)AT(block), blocks->free);  // a reader may still be on its way along a former chain
    blocks->free = block;
    SL_TESTPOINT_(block_given_back);
}

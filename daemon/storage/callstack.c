// How calls nested. One pass over the calls in order of start: each lane remembers its innermost
// open call, and the parents of that are the lane's stack, so lanes cost nothing but a word each. The sort before it is
// a radix sort, linear too, and does not care how the calls are spread over lanes.
//
// When a call comes, calls of its lane that have ended are closed: those whose end is at or before its start. A call of
// no length counts as half a tick longer, so that what starts with it is inside it. The innermost still open is the
// parent, and if the call ends after it the lane does not nest; the first such pair is what scope-profiler names too.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/scoped_lane_run.h"
#include "storage/wrap.h"

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS, INSERTION_MAX = 128 };

// -- order ------------------------------------------------------------------------------------------------------------

struct item {
    uint64_t key;
    uint64_t call;
};

static bool is_sorted(const struct item *items, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (items[i - 1].key > items[i].key)
            return false;
    return true;
}

// Stable; `scratch` is as long. The result is in `items`.
static void sort_items(struct item *items, struct item *scratch, size_t count)
{
    uint64_t highest = 0;
    struct item *from = items, *to = scratch;
    if (is_sorted(items, count))
        return;
    for (size_t i = 0; i < count; i++)
        highest |= items[i].key;
    for (int shift = 0; shift < 64 && highest >> shift; shift += DIGIT_BITS) {
        size_t starts[DIGITS] = {0};
        for (size_t i = 0; i < count; i++)
            starts[from[i].key >> shift & (DIGITS - 1)]++;
        for (size_t digit = 0, sum = 0; digit < DIGITS; digit++) {
            size_t here = starts[digit];
            starts[digit] = sum;
            sum += here;
        }
        for (size_t i = 0; i < count; i++)
            to[starts[from[i].key >> shift & (DIGITS - 1)]++] = from[i];
        struct item *swap = from;
        from = to, to = swap;
    }
    if (from != items)
        memcpy(items, from, count * sizeof *items);
}

static void insertion_sort(struct item *items, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct item item = items[i];
        size_t at = i;
        for (; at > 0 && items[at - 1].key > item.key; at--)
            items[at] = items[at - 1];
        items[at] = item;
    }
}

// Of calls that start together the longest comes first. Their keys become the distance of their end from the last
// one's.
static void sort_ties(struct item *items, struct item *scratch, size_t count, const int64_t *end_ns)
{
    int64_t last = INT64_MIN;
    for (size_t i = 0; i < count; i++)
        last = end_ns[items[i].call] > last ? end_ns[items[i].call] : last;
    for (size_t i = 0; i < count; i++)
        items[i].key = (uint64_t)last - (uint64_t)end_ns[items[i].call];
    if (count <= INSERTION_MAX)
        insertion_sort(items, count);
    else
        sort_items(items, scratch, count);
}

static int make_order(const struct sl_calls *calls, uint64_t *order)
{
    size_t count = calls->count;
    struct item *items = malloc((count + 1) * sizeof *items), *scratch = malloc((count + 1) * sizeof *scratch);
    int64_t earliest = INT64_MAX;
    int result = items && scratch ? 0 : -ENOMEM;
    for (size_t i = 0; i < count; i++)
        earliest = calls->start_ns[i] < earliest ? calls->start_ns[i] : earliest;
    for (size_t i = 0; result == 0 && i < count; i++)
        items[i] = (struct item){(uint64_t)calls->start_ns[i] - (uint64_t)earliest, i};
    if (result == 0)
        sort_items(items, scratch, count);
    for (size_t first = 0, end; result == 0 && first < count; first = end) {
        for (end = first + 1; end < count && items[end].key == items[first].key;)
            end++;
        if (end - first > 1)
            sort_ties(items + first, scratch, end - first, calls->end_ns);
    }
    for (size_t i = 0; result == 0 && i < count; i++)
        order[i] = items[i].call;
    free(items);
    free(scratch);
    return result;
}

// -- lanes as small numbers, ascending with their ids -----------------------------------------------------------------

struct lane_map {
    size_t slots;
    int64_t lowest;
    int64_t *ids;  // ascending, where the ids of a strange file lie too far apart to be numbered by distance; else NULL
};

static int compare_ids(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return left < right ? -1 : left > right;
}

static int map_by_search(struct lane_map *map, const int64_t *lanes, size_t count)
{
    map->ids = malloc((count + 1) * sizeof *map->ids);
    if (!map->ids)
        return -ENOMEM;
    memcpy(map->ids, lanes, count * sizeof *lanes);
    qsort(map->ids, count, sizeof *map->ids, compare_ids);
    for (size_t i = 0; i < count; i++)
        if (map->slots == 0 || map->ids[map->slots - 1] != map->ids[i])
            map->ids[map->slots++] = map->ids[i];
    return 0;
}

// `lanes` NULL: everything is in lane −1.
static int map_lanes(struct lane_map *map, const int64_t *lanes, size_t count)
{
    *map = (struct lane_map){.slots = 1, .lowest = -1};
    if (!lanes || count == 0)
        return 0;
    int64_t lowest = lanes[0], highest = lanes[0];
    for (size_t i = 1; i < count; i++) {
        lowest = lanes[i] < lowest ? lanes[i] : lowest;
        highest = lanes[i] > highest ? lanes[i] : highest;
    }
    uint64_t distance = (uint64_t)highest - (uint64_t)lowest;
    map->lowest = lowest;
    map->slots = (size_t)distance + 1;
    if (distance < 4 * (uint64_t)count + 65536)
        return 0;
    map->slots = 0;
    return map_by_search(map, lanes, count);
}

static size_t slot_of(const struct lane_map *map, int64_t lane)
{
    if (!map->ids)
        return (size_t)((uint64_t)lane - (uint64_t)map->lowest);
    const int64_t *found = bsearch(&lane, map->ids, map->slots, sizeof *map->ids, compare_ids);
    return (size_t)(found - map->ids);
}

static int64_t id_of(const struct lane_map *map, size_t slot)
{
    return map->ids ? map->ids[slot] : (int64_t)((uint64_t)map->lowest + slot);
}

// -- nesting ----------------------------------------------------------------------------------------------------------

static struct sl_nesting_call describe(const struct sl_calls *calls, uint64_t call)
{
    return (struct sl_nesting_call){calls->region[call], calls->call_index[call], calls->start_ns[call],
                                    calls->end_ns[call]};
}

static int check_direction(const struct sl_calls *calls, struct sl_nesting_error *wrong)
{
    for (size_t i = 0; i < calls->count; i++)
        if (calls->end_ns[i] < calls->start_ns[i]) {
            *wrong = (struct sl_nesting_error){.backward = true, .lane = -1, .inner = describe(calls, i)};
            if (calls->thread)
                sl_lane_ids(&calls->thread[i], calls->task ? &calls->task[i] : NULL, 1, &wrong->lane);
            return -EBADMSG;
        }
    return 0;
}

static bool has_ended(const struct sl_calls *calls, uint64_t call, int64_t now_ns)
{
    int64_t end_ns = calls->end_ns[call];
    return end_ns < now_ns || (end_ns == now_ns && calls->start_ns[call] != end_ns);
}

// `tops`: of each lane the innermost call that is open, −1 none.
static int nest(const struct sl_calls *calls, struct sl_call_stack *stack, const struct lane_map *map, int64_t *tops,
                struct sl_nesting_error *wrong)
{
    for (size_t i = 0; i < stack->count; i++) {
        uint64_t call = stack->order[i];
        int64_t *top = &tops[stack->lane ? slot_of(map, stack->lane[i]) : 0];
        int64_t parent = *top, start_ns = calls->start_ns[call], end_ns = calls->end_ns[call];
        while (parent >= 0 && has_ended(calls, stack->order[parent], start_ns))
            parent = stack->parent[parent];
        if (parent >= 0 && end_ns > calls->end_ns[stack->order[parent]]) {
            *wrong = (struct sl_nesting_error){
                .lane = stack->lane ? stack->lane[i] : -1,
                .inner = describe(calls, call),
                .outer = describe(calls, stack->order[parent]),
            };
            return -EBADMSG;
        }
        stack->parent[i] = parent;
        stack->depth[i] = parent < 0 ? 0 : stack->depth[parent] + 1;
        stack->exclusive_ns[i] = wrap_subtract(end_ns, start_ns);
        if (parent >= 0)
            stack->exclusive_ns[parent] = wrap_subtract(stack->exclusive_ns[parent], wrap_subtract(end_ns, start_ns));
        *top = (int64_t)i;
    }
    return 0;
}

static int nest_lanes(const struct sl_calls *calls, struct sl_call_stack *stack, struct sl_nesting_error *wrong)
{
    struct lane_map map;
    int result = map_lanes(&map, stack->lane, stack->count);
    int64_t *tops = result ? NULL : malloc(map.slots * sizeof *tops);
    if (tops) {
        memset(tops, 0xff, map.slots * sizeof *tops);
        result = nest(calls, stack, &map, tops, wrong);
    }
    free(map.ids);
    free(tops);
    return tops ? result : -ENOMEM;
}

static int make_lanes(const struct sl_calls *calls, struct sl_call_stack *stack)
{
    if (!calls->thread)
        return 0;
    stack->lane = malloc((stack->count + 1) * sizeof *stack->lane);
    for (size_t i = 0; stack->lane && i < stack->count; i++) {
        uint64_t call = stack->order[i];
        sl_lane_ids(&calls->thread[call], calls->task ? &calls->task[call] : NULL, 1, &stack->lane[i]);
    }
    return stack->lane ? 0 : -ENOMEM;
}

int sl_call_stack_build(const struct sl_calls *calls, struct sl_call_stack *stack, struct sl_nesting_error *wrong)
{
    size_t room = calls->count + 1;
    *stack = (struct sl_call_stack){0};
    *wrong = (struct sl_nesting_error){0};
    int result = check_direction(calls, wrong);
    if (result)
        return result;
    stack->order = malloc(room * sizeof *stack->order);
    stack->parent = malloc(room * sizeof *stack->parent);
    stack->depth = malloc(room * sizeof *stack->depth);
    stack->exclusive_ns = malloc(room * sizeof *stack->exclusive_ns);
    stack->count = calls->count;
    result = stack->order && stack->parent && stack->depth && stack->exclusive_ns ? 0 : -ENOMEM;
    if (result == 0)
        result = make_order(calls, stack->order);
    if (result == 0)
        result = make_lanes(calls, stack);
    if (result == 0)
        result = nest_lanes(calls, stack, wrong);
    if (result)
        sl_call_stack_finish(stack);
    return result;
}

void sl_call_stack_finish(struct sl_call_stack *stack)
{
    free(stack->order);
    free(stack->lane);
    free(stack->parent);
    free(stack->depth);
    free(stack->exclusive_ns);
    *stack = (struct sl_call_stack){0};
}

// -- what to do with one ----------------------------------------------------------------------------------------------

int sl_nesting_error_text(const struct sl_run *run, uint32_t rank, const struct sl_nesting_error *wrong, char *text,
                          size_t size)
{
    char lane[128], inner[256], outer[256];
    const struct sl_nesting_call *calls[] = {&wrong->inner, &wrong->outer};
    char *texts[] = {inner, outer};
    sl_lane_label(run, rank, wrong->lane, lane, sizeof lane);
    for (int i = 0; i < (wrong->backward ? 1 : 2); i++)
        snprintf(texts[i], sizeof inner, "'%.120s' call %" PRIu64 " [%" PRId64 ", %" PRId64 "] ns",
                 sl_run_region_name(run, calls[i]->region), calls[i]->call_index, calls[i]->start_ns, calls[i]->end_ns);
    if (wrong->backward)
        return snprintf(text, size, "rank %" PRIu32 ", %s: %s ends before it starts", rank, lane, inner);
    return snprintf(text, size,
                    "rank %" PRIu32 ", %s: calls are not properly nested: %s starts inside %s but ends after it", rank,
                    lane, inner, outer);
}

void sl_call_stack_exclusive(const struct sl_call_stack *stack, const struct sl_calls *calls, int64_t *totals)
{
    for (size_t i = 0; i < stack->count; i++)
        totals[calls->region[stack->order[i]]] =
            wrap_add(totals[calls->region[stack->order[i]]], stack->exclusive_ns[i]);
}

// Written from the end: the parents are reached from the call, not the other way.
static void put_before(char *text, size_t size, size_t *at, const char *part, size_t length)
{
    *at -= length;
    if (*at < size)
        memcpy(text + *at, part, length < size - *at ? length : size - *at);
}

size_t sl_call_path(const struct sl_run *run, const struct sl_call_stack *stack, const struct sl_calls *calls,
                    size_t call, char *text, size_t size)
{
    static const char separator[] = " > ";
    size_t length = 0;
    for (int64_t i = (int64_t)call; i >= 0; i = stack->parent[i])
        length += strlen(sl_run_region_name(run, calls->region[stack->order[i]])) +
                  (stack->parent[i] >= 0 ? strlen(separator) : 0);
    if (size == 0)
        return length;
    size_t at = length;
    for (int64_t i = (int64_t)call; i >= 0; i = stack->parent[i]) {
        const char *name = sl_run_region_name(run, calls->region[stack->order[i]]);
        put_before(text, size - 1, &at, name, strlen(name));
        if (stack->parent[i] >= 0)
            put_before(text, size - 1, &at, separator, strlen(separator));
    }
    text[length < size ? length : size - 1] = 0;
    return length;
}

// -- lane by lane -----------------------------------------------------------------------------------------------------

// A counting pass gives each lane its place, a second puts the calls there; `positions` is where each call went.
static void distribute(const struct sl_call_stack *stack, const struct lane_map *map, size_t *next, uint64_t *positions,
                       struct sl_lane_split *split)
{
    for (size_t i = 0; i < stack->count; i++)
        next[stack->lane ? slot_of(map, stack->lane[i]) : 0]++;
    size_t first = 0;
    for (size_t slot = 0; slot < map->slots; slot++) {
        size_t count = next[slot];
        next[slot] = first;
        if (count)
            split->lanes[split->lane_count++] = (struct sl_lane_span){id_of(map, slot), first, count};
        first += count;
    }
    for (size_t i = 0; i < stack->count; i++) {
        size_t *place = &next[stack->lane ? slot_of(map, stack->lane[i]) : 0];
        positions[i] = *place;
        split->calls[(*place)++] = i;
    }
    for (size_t lane = 0; lane < split->lane_count; lane++)
        for (size_t at = split->lanes[lane].first; at < split->lanes[lane].first + split->lanes[lane].count; at++) {
            int64_t parent = stack->parent[split->calls[at]];
            split->parent[at] = parent < 0 ? -1 : (int64_t)(positions[parent] - split->lanes[lane].first);
        }
}

int sl_call_stack_split(const struct sl_call_stack *stack, struct sl_lane_split *split)
{
    struct lane_map map;
    *split = (struct sl_lane_split){0};
    int result = map_lanes(&map, stack->lane, stack->count);
    if (result)
        return result;
    size_t *next = calloc(map.slots, sizeof *next);
    uint64_t *positions = malloc((stack->count + 1) * sizeof *positions);
    size_t lanes = map.slots < stack->count ? map.slots : stack->count;
    split->lanes = malloc((lanes + 1) * sizeof *split->lanes);
    split->calls = malloc((stack->count + 1) * sizeof *split->calls);
    split->parent = malloc((stack->count + 1) * sizeof *split->parent);
    if (next && positions && split->lanes && split->calls && split->parent) {
        distribute(stack, &map, next, positions, split);
    } else {
        sl_lane_split_finish(split);
        result = -ENOMEM;
    }
    free(map.ids);
    free(next);
    free(positions);
    return result;
}

void sl_lane_split_finish(struct sl_lane_split *split)
{
    free(split->lanes);
    free(split->calls);
    free(split->parent);
    *split = (struct sl_lane_split){0};
}

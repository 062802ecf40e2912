// What the daemon says of itself: how it is, its clock, its settings.
#include <unistd.h>

#include "services/http.h"
#include "services/query-rows.h"

static const char *clock_name(uint32_t kind)
{
    return kind == SL_CLOCK_TSC ? "tsc" : kind == SL_CLOCK_ARM ? "arm" : "monotonic";
}

// Paths, commands, and which processes were refused are no other user's business.
void rows_status(struct page *page)
{
    const struct daemon *daemon = page->daemon;
    struct json_writer *json = page->json;
    struct http_counts counts;
    uint64_t runs = 0;
    for (const struct run *run = daemon->runs; run; run = run->next)
        runs += run->state == RUN_RECORDING;
    http_counts(daemon->http, &counts);
    jsonw_object(json);
    jsonw_member_text(json, "version", SL_VERSION);
    jsonw_member_int(json, "pid", getpid());
    jsonw_member_text(json, "host", daemon->host);
    jsonw_member_text(json, "rundir", daemon->rundir);
    jsonw_member_text(json, "output", page->sees_all ? daemon->settings.output : NULL);
    jsonw_member_bool(json, "private", daemon->options.private_mode);
    jsonw_member_time(json, "started_ns", daemon->started_ns);
    jsonw_member_text(json, "clock", clock_name(daemon->clock_kind));
    jsonw_member_int(json, "clock_error_ns", daemon->clock.error_ns);
    jsonw_member_uint(json, "runs", runs);
    jsonw_member_uint(json, "processes", daemon->client_count);
    uint64_t without = 0;
    for (const struct client *client = daemon->clients; client; client = client->next)
        without += client->socket < 0;
    jsonw_member_uint(json, "without_socket", without);
    jsonw_member_uint(json, "refused", daemon->refused);
    jsonw_member_text(json, "last_refusal", daemon->refused && page->sees_all ? daemon->last_refusal : NULL);
    uint64_t stuck = 0;
    for (const struct client *client = daemon->clients; client; client = client->next)
        stuck += client->stuck_count;
    jsonw_member_uint(json, "stuck", stuck);
    jsonw_member_uint(json, "alerts", daemon->alerts);
    jsonw_member_uint(json, "pump_period_ms", daemon->pump_period_ms);
    jsonw_member_uint(json, "connections", counts.connections_now);
    jsonw_member_uint(json, "requests", counts.requests);
    jsonw_member_int(json, "requests_cpu_ns", counts.cpu_ns);
    jsonw_object_end(json);
}

void rows_clock(struct page *page)
{
    const struct ticks *clock = &page->daemon->clock;
    struct json_writer *json = page->json;
    jsonw_object(json);
    jsonw_member_text(json, "host", page->daemon->host);
    jsonw_member_text(json, "clock", clock_name(page->daemon->clock_kind));
    jsonw_member_double(json, "ns_per_tick", clock->ns_per_tick);
    jsonw_member_int(json, "error_ns", clock->error_ns);
    jsonw_member_uint(json, "stretches", clock->stretches);
    jsonw_member_uint(json, "anchors", clock->count);
    jsonw_key(json, "latest");
    if (clock->count) {
        const struct anchor *anchor = &clock->anchors[clock->count - 1];
        jsonw_object(json);
        jsonw_member_id(json, "ticks", anchor->ticks);
        jsonw_member_int(json, "monotonic_ns", anchor->monotonic_ns);
        jsonw_member_id(json, "realtime_ns", (uint64_t)anchor->realtime_ns);
        jsonw_object_end(json);
    } else {
        jsonw_null(json);
    }
    jsonw_object_end(json);
}

static void member_value(const struct page *page, const struct settings *settings, const struct setting *setting)
{
    struct json_writer *json = page->json;
    if (setting_is_text(setting))
        jsonw_member_text(json, "value", page->sees_all ? *setting_text(settings, setting) : NULL);
    else if (setting->kind == SETTING_SWITCH)
        jsonw_member_bool(json, "value", *setting_number(settings, setting) != 0);
    else if (setting->kind == SETTING_SECONDS)
        jsonw_member_double(json, "value", (double)*setting_number(settings, setting) / 1000);
    else
        jsonw_member_uint(json, "value", *setting_number(settings, setting));
}

void rows_config(struct page *page)
{
    static const char *const sources[] = {"default", "file", "command line"};
    const struct settings *settings = &page->daemon->settings;
    struct json_writer *json = page->json;
    for (const struct setting *setting = settings_table; setting->name; setting++) {
        jsonw_object(json);
        jsonw_member_text(json, "key", setting->name);
        member_value(page, settings, setting);
        jsonw_member_text(json, "unit", setting->kind == SETTING_SIZE ? "bytes" : setting->kind == SETTING_SECONDS ? "seconds" : NULL);
        jsonw_member_text(json, "source", sources[settings->source[setting - settings_table]]);
        jsonw_member_text(json, "file", page->sees_all ? page->daemon->options.config : NULL);
        jsonw_member_bool(json, "while_running", setting->while_running);
        jsonw_object_end(json);
    }
}

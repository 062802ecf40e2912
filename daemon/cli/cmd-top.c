// scoped-lane top: runs, ranks and lanes on a screen, busiest first, looked at again every second. Where there is no
// terminal, or one that can do nothing, it is one look as text.
#include <curses.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/say.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/top.h"
#include "cli/where.h"

enum { HEAD_LINES = 3, KEY_ESCAPE = 27, HISTORY = 3 };

static const struct command_option options[] = {
    {.name = "interval",
     .letter = 'd',
     .argument = "SECONDS",
     .kind = COMMAND_SECONDS,
     .help = "look again every SECONDS (default 1)"},
    {.name = "sort", .argument = "cpu|age|calls|name", .help = "what comes first (default cpu)"},
    {.name = "filter",
     .argument = "TEXT",
     .help = "only lanes with this in their label, state or regions, or of \"rank N\""},
    COMMAND_OPTION_RUNDIR,
    {0},
};

struct screen {
    const char *rundir;
    int64_t interval_ns, next_ns;
    struct top_view view;
    struct top_sample sample;
    struct top_counters
        history[HISTORY];  // the latest, newest first: daemons look at processor times seldom where threads are many
    struct top_lines lines;
    bool paused, where, helped, typing;
    bool nobody;   // no daemon answers
    size_t first;  // line at the top
    int error_fd;  // where stderr went
};

// ---- what there is to see

static void make_lines(struct screen *screen)
{
    top_lines_finish(&screen->lines);
    top_lines(&screen->sample, &screen->view, &screen->lines);
}

static void remember(struct screen *screen, const struct top_counters *counters)
{
    json_decref(screen->history[HISTORY - 1].values);
    memmove(&screen->history[1], &screen->history[0], (HISTORY - 1) * sizeof screen->history[0]);
    screen->history[0] = (struct top_counters){json_incref(counters->values), counters->time_ns};
}

static const struct top_counters *oldest_known(const struct screen *screen)
{
    int i = HISTORY - 1;
    while (i >= 0 && !screen->history[i].values)
        i--;
    return i >= 0 ? &screen->history[i] : NULL;
}

static void look(struct screen *screen)
{
    struct top_sample sample;
    screen->nobody = top_sample(screen->rundir, true, oldest_known(screen), &sample) < 0;
    top_sample_finish(&screen->sample);
    screen->sample = sample;
    if (!screen->nobody)
        remember(screen, &sample.counters);
    make_lines(screen);
}

static void add_text(struct top_lines *lines, const char *text)
{
    lines->list = alloc_resize(lines->list, lines->count + 1, sizeof *lines->list);
    lines->list[lines->count++] = (struct top_line){TOP_LANE, alloc_text(text)};
}

// The roll call instead of the tree.
static void look_where(struct screen *screen)
{
    struct client_query query = {.rundir = screen->rundir, .path = "/v1/where", .quiet = true};
    json_t *reply;
    char *text = NULL, *line, *rest;
    size_t length = 0;
    top_lines_finish(&screen->lines);
    screen->nobody = client_ask(&query, &reply) < 0;
    FILE *picture = screen->nobody ? NULL : open_memstream(&text, &length);
    if (picture) {
        where_name_idle(json_object_get(reply, "rows"));
        table_print(picture, TABLE_ALIGNED, where_columns, json_object_get(reply, "rows"), 0);
        fclose(picture);
        for (rest = text; (line = strsep(&rest, "\n")) && rest;)
            add_text(&screen->lines, line);
    }
    free(text);
    if (!screen->nobody)
        json_decref(reply);
    if (screen->lines.count == 0)
        add_text(&screen->lines, "no lane is in a region");
}

static char *summary(const struct screen *screen)
{
    const struct top_lines *lines = &screen->lines;
    if (screen->nobody)
        return alloc_text("scoped-lane: no daemon answers");
    if (screen->where)
        return alloc_text("scoped-lane: where the lanes are, the smallest groups first");
    return alloc_printf("scoped-lane: %zu run%s, %zu rank%s, %zu lane%s, %zu busy; by %s%s%s", screen->sample.run_count,
                        screen->sample.run_count == 1 ? "" : "s", lines->ranks, lines->ranks == 1 ? "" : "s", lines->lanes,
                        lines->lanes == 1 ? "" : "s", lines->busy, top_sort_names[screen->view.sort],
                        *screen->view.filter ? "; only " : "", screen->view.filter);
}

// ---- the screen

static void put_line(int y, const char *text, attr_t attributes)
{
    char *fitted = top_fit(text, COLS, attributes & A_REVERSE);
    attrset((int)attributes);
    mvaddstr(y, 0, fitted);
    attrset(A_NORMAL);
    free(fitted);
}

static const char *const help_lines[] = {
    "q           leave",
    "s           sort by processor time, age of the state, calls, name in turn",
    "/           only lanes with this text in their label, state or regions; or \"rank 3\"",
    "i           idle lanes one by one, or those in the same regions as one line",
    "w           where: the roll call; once more goes back",
    "p, space    stand still, and go on",
    "arrows, page up and down, home, end",
    "",
    "CPU    of a thread its processor time, of a task the time it was stepped, in the last looks",
    "SINCE  for how long a lane has neither entered nor left a region",
};

static void draw(struct screen *screen)
{
    static const attr_t attributes[] = {
        [TOP_RUN] = A_BOLD, [TOP_RANK] = A_UNDERLINE, [TOP_LANE] = A_NORMAL, [TOP_IDLE] = A_DIM};
    size_t room = LINES > HEAD_LINES ? (size_t)LINES - HEAD_LINES : 0, count = screen->lines.count;
    size_t last = count > room ? count - room : 0;
    screen->first = screen->first > last ? last : screen->first;
    erase();
    char *text = summary(screen);
    put_line(0, text, A_BOLD);
    free(text);
    text = screen->typing ? alloc_printf("filter: %s_", screen->view.filter)
                          : alloc_printf("%sq quit  s sort  / filter  i idle  w where  p pause  h help",
                                         screen->paused ? "PAUSED  " : "");
    put_line(1, text, screen->typing ? A_BOLD : A_NORMAL);
    free(text);
    put_line(2, screen->helped || screen->where ? "" : top_header(), A_REVERSE);
    for (size_t i = 0; screen->helped && i < sizeof help_lines / sizeof *help_lines && i < room; i++)
        put_line((int)i + HEAD_LINES, help_lines[i], A_NORMAL);
    for (size_t i = 0; !screen->helped && i < room && screen->first + i < count; i++)
        put_line((int)i + HEAD_LINES, screen->lines.list[screen->first + i].text,
                 attributes[screen->lines.list[screen->first + i].kind]);
    refresh();
}

static volatile sig_atomic_t ended_by;

static void on_signal(int number)
{
    ended_by = number;
}

// False where the terminal can do nothing. What is said meanwhile is not put on the screen.
static bool open_screen(struct screen *screen)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    struct sigaction action = {.sa_handler = on_signal};
    if (!newterm(NULL, stdout, stdin))
        return false;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &action, NULL);
    screen->error_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(null, STDERR_FILENO);
    close(null);
    cbreak();
    noecho();
    keypad(stdscr, TRUE);
    set_escdelay(50);
    curs_set(0);
    return true;
}

static void close_screen(const struct screen *screen)
{
    endwin();
    dup2(screen->error_fd, STDERR_FILENO);
    close(screen->error_fd);
}

// ---- keys

static void type(struct screen *screen, int key)
{
    size_t length = strlen(screen->view.filter);
    if (key == '\n' || key == KEY_ENTER) {
        screen->typing = false;
    } else if (key == KEY_ESCAPE) {
        screen->typing = false;
        screen->view.filter[0] = 0;
    } else if (key == KEY_BACKSPACE || key == 127 || key == '\b') {
        while (length && (screen->view.filter[--length] & 0xc0) == 0x80)  // the rest of a character
            ;
        screen->view.filter[length] = 0;
    } else if (key >= ' ' && key < 256 && length + 1 < sizeof screen->view.filter) {
        screen->view.filter[length] = (char)key;
        screen->view.filter[length + 1] = 0;
    }
    make_lines(screen);
}

static void scroll_by(struct screen *screen, int64_t lines)
{
    int64_t first = (int64_t)screen->first + lines;
    screen->first = first < 0 ? 0 : (size_t)first;
}

// False: that was the end.
static bool take_key(struct screen *screen, int key)
{
    if (screen->typing && key != KEY_RESIZE) {
        type(screen, key);
        return true;
    }
    switch (key) {
    case 'q': return false;
    case 's': screen->view.sort = (screen->view.sort + 1) % TOP_SORTS; break;
    case '/': screen->typing = true; break;
    case 'i': screen->view.unfolded = !screen->view.unfolded; break;
    case 'p':
    case ' ': screen->paused = !screen->paused; break;
    case 'h':
    case '?': screen->helped = !screen->helped; return true;
    case KEY_UP: scroll_by(screen, -1); return true;
    case KEY_DOWN: scroll_by(screen, 1); return true;
    case KEY_PPAGE: scroll_by(screen, HEAD_LINES - LINES); return true;
    case KEY_NPAGE: scroll_by(screen, LINES - HEAD_LINES); return true;
    case KEY_HOME: screen->first = 0; return true;
    case KEY_END: screen->first = screen->lines.count; return true;
    case 'w':
        screen->where = !screen->where;
        screen->first = 0;
        break;
    default: return true;
    }
    screen->helped = false;
    if (key == '/')
        screen->where = false;
    if (screen->where)
        look_where(screen);
    else
        make_lines(screen);
    return true;
}

static void watch(struct screen *screen)
{
    while (!ended_by) {
        int64_t now_ns = clock_monotonic_ns();
        if (now_ns >= screen->next_ns && !screen->paused && !screen->typing) {
            if (screen->where)
                look_where(screen);
            else
                look(screen);
            screen->next_ns = clock_monotonic_ns() + screen->interval_ns;
        }
        draw(screen);
        int64_t left_ns = screen->next_ns - clock_monotonic_ns();
        timeout(screen->paused || screen->typing ? 1000 : left_ns > 0 ? (int)(left_ns / 1000000) + 1 : 0);
        int key = getch();
        if (key != ERR && !take_key(screen, key))
            break;
    }
}

// ---- as text

static int print(struct screen *screen)
{
    if (top_sample(screen->rundir, false, NULL, &screen->sample) < 0)
        return COMMAND_FAILED;
    remember(screen, &screen->sample.counters);
    poll(NULL, 0, (int)(screen->interval_ns / 1000000));
    look(screen);
    if (screen->nobody)
        return COMMAND_FAILED;
    char *text = summary(screen);
    printf("%s\n%s\n", text, top_header());
    free(text);
    for (size_t i = 0; i < screen->lines.count; i++) {
        char *line = top_fit(screen->lines.list[i].text, INT32_MAX, false);
        puts(line);
        free(line);
    }
    return COMMAND_DONE;
}

static int read_options(const struct command_line *line, struct screen *screen)
{
    const char *sort = command_text(line, "sort"), *filter = command_text(line, "filter");
    int chosen = 0;
    while (sort && chosen < TOP_SORTS && strcmp(sort, top_sort_names[chosen]) != 0)
        chosen++;
    if (chosen == TOP_SORTS) {
        say("top: --sort is cpu, age, calls or name, not \"%s\"", sort);
        return COMMAND_MISUSED;
    }
    screen->rundir = command_text(line, "rundir");
    screen->interval_ns = (int64_t)(command_seconds(line, "interval", 1) * 1e9);
    screen->view.sort = (enum top_sort)chosen;
    snprintf(screen->view.filter, sizeof screen->view.filter, "%s", filter ? filter : "");
    return COMMAND_DONE;
}

static int run(const struct command_line *line)
{
    struct screen screen = {0};
    int status = read_options(line, &screen);
    if (status != COMMAND_DONE)
        return status;
    if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && open_screen(&screen)) {
        watch(&screen);
        close_screen(&screen);
    } else {
        status = print(&screen);
    }
    top_lines_finish(&screen.lines);
    top_sample_finish(&screen.sample);
    for (int i = 0; i < HISTORY; i++)
        json_decref(screen.history[i].values);
    if (ended_by) {
        signal(ended_by, SIG_DFL);
        raise(ended_by);
    }
    return status;
}

const struct command command_top = {
    .name = "top",
    .summary = "watch runs, ranks and lanes, the busiest first",
    .details = "Keys are shown on the screen, h tells of all. Idle lanes that are in the same regions are one line.\n"
               "Without a terminal it prints what is there once.",
    .options = options,
    .function = run,
};

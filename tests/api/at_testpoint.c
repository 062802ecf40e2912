// at_testpoint [-n N] [-s] [-f] [-o FILE] ELF ADDRESS[,ADDRESS…] COMMAND…: runs the command and, when it comes to one of the
// addresses of the ELF file (the program, or a library it is linked with) for the N-th time, kills the process there: all its
// threads, at once. tests/end/testpoints.py knows the addresses.
//
//   -n N     the N-th hit (default 1); 0 kills nothing
//   -s       stops the thread there instead, until a line comes on standard input ("kill", or anything to go on)
//   -f       also in the processes that the command starts; without it they run on untraced
//   -o FILE  says there: "hit PID TID ADDRESS" when it kills or stops, "count ADDRESS N" for each when all have ended
//
// Ends with the command's exit status (128 + the signal's number where one ended it), when all that it traces has ended. A
// testpoint is a nop of one byte: an int3 is written over it, and whoever meets that goes on behind it.
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/kcmp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { POINTS = 512, TASKS = 4096, NOP = 0x90, INT3 = 0xcc };

struct process {
    pid_t pid;
    bool wanted;     // testpoints in it count
    bool armed;
    uint64_t bias;   // of the ELF file in its memory
    uint64_t entry;  // breakpoint at its entry point, 0 none: the libraries are mapped when it gets there
    uint8_t entry_byte;
};

struct thread {
    pid_t tid, pid;
};

static struct process processes[TASKS];
static struct thread threads[TASKS];
static int process_count, thread_count;

static const char *elf;
static struct stat elf_file;
static uint64_t elf_base;  // address of the file's first byte, as linked
static uint64_t points[POINTS], counts[POINTS];
static int point_count;
static uint64_t act_at = 1, hits;
static bool stops, follows, has_acted;
static struct thread stopped;
static FILE *report;
static pid_t command;
static int command_status;

static void fail(const char *what, const char *on)
{
    fprintf(stderr, "at_testpoint: %s %s: %s\n", what, on, strerror(errno));
    exit(125);
}

// ---- who is traced

static struct process *process_of(pid_t pid)
{
    for (int i = 0; i < process_count; i++)
        if (processes[i].pid == pid)
            return &processes[i];
    return NULL;
}

static struct thread *thread_of(pid_t tid)
{
    for (int i = 0; i < thread_count; i++)
        if (threads[i].tid == tid)
            return &threads[i];
    return NULL;
}

static struct process *add_process(struct process process)
{
    if (process_count == TASKS)
        fail("too many", "processes");
    processes[process_count] = process;
    return &processes[process_count++];
}

static void add_thread(pid_t tid, pid_t pid)
{
    if (thread_count == TASKS)
        fail("too many", "threads");
    threads[thread_count++] = (struct thread){tid, pid};
}

static void drop_thread(struct thread *thread)
{
    pid_t pid = thread->pid;
    *thread = threads[--thread_count];
    for (int i = 0; i < thread_count; i++)
        if (threads[i].pid == pid)
            return;
    struct process *process = process_of(pid);
    if (process)
        *process = processes[--process_count];
}

static pid_t status_number(pid_t tid, const char *key)
{
    char path[64], line[256];
    long number = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)tid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0)
            number = atol(line + strlen(key));
    if (file)
        fclose(file);
    return (pid_t)number;
}

static bool shares_memory(pid_t one, pid_t other)
{
    return syscall(SYS_kcmp, one, other, KCMP_VM, 0, 0) == 0;
}

// ---- its memory

static bool peek(pid_t pid, uint64_t address, void *bytes, size_t length)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool done = fd >= 0 && pread(fd, bytes, length, (off_t)address) == (ssize_t)length;
    if (fd >= 0)
        close(fd);
    return done;
}

static bool poke(pid_t pid, uint64_t address, uint8_t byte)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", (int)pid);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool done = fd >= 0 && pwrite(fd, &byte, 1, (off_t)address) == 1;
    if (fd >= 0)
        close(fd);
    return done;
}

static void read_elf(void)
{
    Elf64_Ehdr header;
    Elf64_Phdr segment;
    int fd = open(elf, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &elf_file) < 0 || pread(fd, &header, sizeof header, 0) != sizeof header)
        fail("cannot read", elf);
    for (int i = 0; i < header.e_phnum; i++) {
        off_t at = (off_t)(header.e_phoff + (uint64_t)i * sizeof segment);
        if (pread(fd, &segment, sizeof segment, at) == sizeof segment && segment.p_type == PT_LOAD && segment.p_offset == 0)
            elf_base = segment.p_vaddr;
    }
    close(fd);
}

// Where the file lies in the process; false where it is not mapped.
static bool find_bias(pid_t pid, uint64_t *bias)
{
    char path[64], line[4096];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "r");
    while (maps && !found && fgets(line, sizeof line, maps)) {
        uint64_t start, offset, inode;
        int at = 0;
        if (sscanf(line, "%" SCNx64 "-%*x %*s %" SCNx64 " %*s %" SCNu64 " %n", &start, &offset, &inode, &at) < 3 || offset != 0)
            continue;
        line[strcspn(line, "\n")] = 0;
        struct stat file;
        found = inode == elf_file.st_ino && stat(line + at, &file) == 0 && file.st_dev == elf_file.st_dev;
        *bias = start - elf_base;
    }
    if (maps)
        fclose(maps);
    return found;
}

static void arm(struct process *process)
{
    uint8_t byte;
    for (int i = 0; i < point_count; i++) {
        uint64_t address = process->bias + points[i];
        if (!peek(process->pid, address, &byte, 1) || byte != NOP || !poke(process->pid, address, INT3)) {
            fprintf(stderr, "at_testpoint: there is no testpoint at 0x%" PRIx64 " of %s\n", points[i], elf);
            exit(125);
        }
    }
    process->armed = true;
}

static void disarm(struct process *process)
{
    for (int i = 0; process->armed && i < point_count; i++)
        poke(process->pid, process->bias + points[i], NOP);
    process->armed = false;
}

static uint64_t entry_point(pid_t pid)
{
    char path[64];
    Elf64_auxv_t item;
    uint64_t entry = 0;
    snprintf(path, sizeof path, "/proc/%d/auxv", (int)pid);
    FILE *file = fopen(path, "r");
    while (file && fread(&item, sizeof item, 1, file) == 1)
        if (item.a_type == AT_ENTRY)
            entry = item.a_un.a_val;
    if (file)
        fclose(file);
    return entry;
}

// ---- what happens to it

static void go_on(pid_t tid, int signal_number)
{
    ptrace(PTRACE_CONT, tid, NULL, signal_number);
}

// A new program image: its testpoints are armed now, or at its entry point, when its libraries are there.
static void on_exec(pid_t pid)
{
    for (int i = thread_count; i-- > 0;)
        if (threads[i].pid == pid && threads[i].tid != pid)
            threads[i] = threads[--thread_count];
    struct process *process = process_of(pid);
    if (!process)
        process = add_process((struct process){.pid = pid});
    *process = (struct process){.pid = pid, .wanted = pid == command || follows};
    if (!thread_of(pid))
        add_thread(pid, pid);
    if (!process->wanted) {
        drop_thread(thread_of(pid));
        ptrace(PTRACE_DETACH, pid, NULL, NULL);
        return;
    }
    if (!has_acted && find_bias(pid, &process->bias)) {
        arm(process);
    } else if (!has_acted) {
        process->entry = entry_point(pid);
        if (!peek(pid, process->entry, &process->entry_byte, 1) || !poke(pid, process->entry, INT3))
            process->entry = 0;
    }
    go_on(pid, 0);
}

static void on_entry(struct process *process, struct user_regs_struct *registers)
{
    poke(process->pid, process->entry, process->entry_byte);
    registers->rip = process->entry;
    ptrace(PTRACE_SETREGS, process->pid, NULL, registers);
    process->entry = 0;
    if (!has_acted && find_bias(process->pid, &process->bias))
        arm(process);
    go_on(process->pid, 0);
}

static void on_hit(const struct thread *thread, int point)
{
    counts[point]++;
    if (has_acted || ++hits != act_at) {
        go_on(thread->tid, 0);  // behind the int3
        return;
    }
    has_acted = true;
    fprintf(report, "hit %d %d 0x%" PRIx64 "\n", (int)thread->pid, (int)thread->tid, points[point]);
    fflush(report);
    stopped = *thread;
    if (!stops)
        kill(thread->pid, SIGKILL);
    for (int i = 0; i < process_count; i++)
        disarm(&processes[i]);
}

// A SIGTRAP: ours, or the program's own.
static void on_trap(const struct thread *thread)
{
    struct user_regs_struct registers;
    struct process *process = process_of(thread->pid);
    if (!process || ptrace(PTRACE_GETREGS, thread->tid, NULL, &registers) < 0) {
        go_on(thread->tid, SIGTRAP);
        return;
    }
    uint64_t address = registers.rip - 1;
    if (process->entry && address == process->entry) {
        on_entry(process, &registers);
        return;
    }
    for (int i = 0; i < point_count; i++)
        if (process->bias && address == process->bias + points[i]) {
            if (process->wanted)
                on_hit(thread, i);
            else
                go_on(thread->tid, 0);
            return;
        }
    go_on(thread->tid, SIGTRAP);
}

// The first stop of a thread or process that we have not seen. A process that is not followed is let go, without the int3s that it
// has inherited; where it shares its parent's memory (vfork) it stays until it executes a program.
static void on_new(pid_t tid)
{
    pid_t pid = status_number(tid, "Tgid:"), parent = status_number(tid, "PPid:");
    if (pid != tid) {
        add_thread(tid, pid);
        go_on(tid, 0);
        return;
    }
    struct process *from = process_of(parent), made = {.pid = pid};
    if (from)
        made = (struct process){.pid = pid, .wanted = follows, .armed = from->armed, .bias = from->bias};
    bool shares = from && shares_memory(pid, parent);
    if (shares)
        made.wanted = made.armed = false;  // the int3s are the parent's
    if (!follows && !shares) {
        disarm(&made);
        ptrace(PTRACE_DETACH, tid, NULL, NULL);
        return;
    }
    add_process(made);
    add_thread(tid, pid);
    go_on(tid, 0);
}

static void on_stop(pid_t tid, int status)
{
    int number = WSTOPSIG(status), event = status >> 16;
    struct thread *thread = thread_of(tid);
    if (event == PTRACE_EVENT_EXEC)
        on_exec(tid);
    else if (!thread)
        on_new(tid);
    else if (event == PTRACE_EVENT_STOP && number != SIGTRAP)
        ptrace(PTRACE_LISTEN, tid, NULL, NULL);  // stopped by a signal: it stays so
    else if (event)
        go_on(tid, 0);
    else if (number == SIGTRAP)
        on_trap(thread);
    else
        go_on(tid, number);
}

// Everything that has changed since the last look. False when nothing is traced any more.
static bool look(void)
{
    int status;
    pid_t tid;
    while ((tid = waitpid(-1, &status, __WALL | WNOHANG)) > 0) {
        if (WIFSTOPPED(status)) {
            on_stop(tid, status);
            continue;
        }
        if (tid == command)
            command_status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        struct thread *thread = thread_of(tid);
        if (thread)
            drop_thread(thread);
    }
    return thread_count > 0;
}

static void hear(void)
{
    char line[64];
    ssize_t length = read(STDIN_FILENO, line, sizeof line);
    if (length >= 4 && strncmp(line, "kill", 4) == 0)
        kill(stopped.pid, SIGKILL);
    else
        go_on(stopped.tid, 0);
    stops = false;
}

static void run(int changes)
{
    struct pollfd wait_for[2] = {{.fd = changes, .events = POLLIN}, {.fd = STDIN_FILENO, .events = POLLIN}};
    struct signalfd_siginfo info;
    while (look()) {
        poll(wait_for, stops && has_acted ? 2 : 1, -1);
        if (read(changes, &info, sizeof info) < 0 && errno != EAGAIN)
            fail("cannot read", "signals");
        if (stops && has_acted && wait_for[1].revents)
            hear();
    }
}

static void start(char **words)
{
    int gate[2];
    char go = 0;
    if (pipe2(gate, O_CLOEXEC) < 0 || (command = fork()) < 0)
        fail("cannot start", words[0]);
    if (command == 0) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        if (read(gate[0], &go, 1) == 1)
            execvp(words[0], words);
        _exit(127);
    }
    long options = PTRACE_O_TRACEEXEC | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SEIZE, command, NULL, options) < 0 || write(gate[1], &go, 1) != 1)
        fail("cannot trace", words[0]);
    add_process((struct process){.pid = command});
    add_thread(command, command);
    close(gate[0]);
    close(gate[1]);
}

static int misuse(void)
{
    fprintf(stderr, "usage: at_testpoint [-n N] [-s] [-f] [-o FILE] ELF ADDRESS[,ADDRESS...] COMMAND...\n");
    return 125;
}

int main(int argc, char **argv)
{
    sigset_t changes;
    int option;
    report = stdout;
    while ((option = getopt(argc, argv, "+n:sfo:")) != -1) {
        switch (option) {
        case 'n': act_at = strtoull(optarg, NULL, 10); break;
        case 's': stops = true; break;
        case 'f': follows = true; break;
        case 'o': report = fopen(optarg, "we"); break;
        default: return misuse();
        }
    }
    if (argc - optind < 3 || !report)
        return misuse();
    elf = argv[optind];
    read_elf();
    for (char *word = strtok(argv[optind + 1], ","); word && point_count < POINTS; word = strtok(NULL, ","))
        points[point_count++] = strtoull(word, NULL, 16);
    sigemptyset(&changes);
    sigaddset(&changes, SIGCHLD);
    sigprocmask(SIG_BLOCK, &changes, NULL);
    int fd = signalfd(-1, &changes, SFD_NONBLOCK | SFD_CLOEXEC);
    start(argv + optind + 2);
    run(fd);
    for (int i = 0; i < point_count; i++)
        fprintf(report, "count 0x%" PRIx64 " %" PRIu64 "\n", points[i], counts[i]);
    fclose(report);
    return command_status;
}

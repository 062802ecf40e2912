#include "cli/places.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/rundir.h"

static bool is_ours(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid();
}

void places_visit(const char *rundir_option, void (*visit)(void *context, const char *rundir, bool is_private), void *context)
{
    struct rundir_list list;
    rundir_places(&list, rundir_option);
    for (int i = 0; i < list.count; i++) {
        if (!is_ours(list.paths[i]))
            continue;
        DIR *directory = opendir(list.paths[i]);
        struct dirent *entry;
        while (directory && (entry = readdir(directory))) {
            char *path = alloc_printf("%s/%s", list.paths[i], entry->d_name);
            if (strncmp(entry->d_name, "run-", 4) == 0 && is_ours(path))
                visit(context, path, true);
            free(path);
        }
        if (directory)
            closedir(directory);
        visit(context, list.paths[i], false);
    }
}

bool places_listens(const char *rundir)
{
    int fd = rundir_connect(rundir, "query.sock", SOCK_STREAM);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

char *places_daemon_program(void)
{
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 32);
    if (length > 0) {
        path[length] = 0;
        char *slash = strrchr(path, '/');
        strcpy(slash ? slash + 1 : path, "scoped-laned");
        if (access(path, X_OK) == 0)
            return alloc_text(path);
    }
    return alloc_text("scoped-laned");
}

// An MPI program that knows nothing of scoped-lane.
//
//   calls [-n N]     each kind of call N times, and how often each was made: one line "NAME COUNT" a rank, by rank 0
//   calls hang       rank 1 waits for a message that nobody sends, the others in a barrier
//   calls skip       rank 1 computes for ever, the others wait for it in a barrier
//   calls teardown   rank 0 has failed and hangs in what it does at its exit, the others wait for it in a barrier
//   calls on         steps that never end
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;

static void exchange(int times)
{
    int left = (rank + size - 1) % size, right = (rank + 1) % size, out = rank, in;
    for (int i = 0; i < times; i++) {
        MPI_Request requests[2];
        MPI_Sendrecv(&out, 1, MPI_INT, right, 0, &in, 1, MPI_INT, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Irecv(&in, 1, MPI_INT, left, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(&out, 1, MPI_INT, right, 1, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        if (in != left)
            MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void together(int times)
{
    int *all = calloc((size_t)size, sizeof *all);
    for (int i = 0; i < times; i++) {
        int sum = rank;
        MPI_Request request;
        MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        MPI_Bcast(&sum, 1, MPI_INT, 0, MPI_COMM_WORLD);
        MPI_Allgather(&rank, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
        MPI_Ibarrier(MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
        if (sum != size * (size - 1) / 2 || all[size - 1] != size - 1)
            MPI_Abort(MPI_COMM_WORLD, 1);
    }
    free(all);
}

static void write_file(int times, const char *path)
{
    MPI_File file;
    MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    for (int i = 0; i < times; i++)
        MPI_File_write_at_all(file, rank * (MPI_Offset)sizeof rank, &rank, 1, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
}

static void say_counts(int times)
{
    static const char *const each[] = {"Sendrecv",  "Irecv",    "Isend", "Waitall", "Allreduce",        "Bcast",
                                       "Allgather", "Ibarrier", "Wait",  "Barrier", "File_write_at_all"};
    static const char *const once[] = {"Init", "Finalize", "File_open", "File_close"};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        printf("MPI_%s %d\n", each[i], times);
    for (size_t i = 0; i < sizeof once / sizeof *once; i++)
        printf("MPI_%s 1\n", once[i]);
}

static void hang(void)
{
    for (;;)
        pause();
}

int main(int count, char **words)
{
    int times = count > 2 ? atoi(words[2]) : 10;
    const char *what = count > 1 ? words[1] : "-n";
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (strcmp(what, "hang") == 0) {
        int never;
        if (rank == 1)
            MPI_Recv(&never, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    for (volatile long i = 0; strcmp(what, "skip") == 0 && rank == 1; i++)
        ;
    if (strcmp(what, "skip") == 0)
        MPI_Barrier(MPI_COMM_WORLD);
    if (strcmp(what, "teardown") == 0 && rank == 0) {
        atexit(hang);
        exit(1);
    }
    if (strcmp(what, "teardown") == 0)
        MPI_Barrier(MPI_COMM_WORLD);
    while (strcmp(what, "on") == 0) {
        exchange(1);
        together(1);
        usleep(1000);
    }
    exchange(times);
    together(times);
    write_file(times, "calls.bin");
    if (rank == 0)
        say_counts(times);
    MPI_Finalize();
    return 0;
}

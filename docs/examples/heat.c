// The heat equation on a square plate with MPI and threads, recorded by scoped-lane.
//
//     heat [-n SIZE] [-s STEPS] [-t WORKERS]
//
// The plate's rows are divided over the ranks. Each step exchanges the outer rows with the two neighbours (halo), replaces
// every point by the mean of its four neighbours (compute; the rank's rows are divided again over its main thread and
// WORKERS threads that live as long as the program), and asks all ranks for the largest change (allreduce). Rank 0 prints
// that residual and the sum of the plate at the end: the same in every run with the same arguments, recorded or not.
#include <math.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <scoped_lane.h>

static sl_region_t session, step, halo, compute, allreduce;

// One rank's share of the plate: rows 1..rows, with the neighbours' nearest rows as 0 and rows + 1.
struct plate {
    int size, rows, first_row;
    int above, below;  // neighbouring ranks, or MPI_PROC_NULL
    double *now, *next;
};

// Threads that each compute a band of the rank's rows whenever the main thread opens the gate.
struct pool {
    int workers;
    int running;
    struct plate *plate;
    double *residuals;  // one per band: the main thread's, then the workers'
    pthread_t *threads;
    pthread_barrier_t gate, done;
};

struct worker {
    struct pool *pool;
    int band;
};

static double *row(const struct plate *plate, double *values, int i)
{
    return values + (size_t)i * (size_t)plate->size;
}

// -- the plate

static int plate_create(struct plate *plate, int size, int rank, int ranks)
{
    plate->size = size;
    plate->first_row = (int)((long)size * rank / ranks);
    plate->rows = (int)((long)size * (rank + 1) / ranks) - plate->first_row;
    plate->above = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    plate->below = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    size_t points = (size_t)(plate->rows + 2) * (size_t)size;
    plate->now = calloc(points, sizeof *plate->now);
    plate->next = calloc(points, sizeof *plate->next);
    if (!plate->now || !plate->next)
        return -1;
    // cold, with a hot spot in the middle third
    for (int i = 1; i <= plate->rows; i++)
        for (int j = size / 3; j < 2 * size / 3; j++)
            if (plate->first_row + i > size / 3 && plate->first_row + i <= 2 * size / 3)
                row(plate, plate->now, i)[j] = 100;
    return 0;
}

static void plate_destroy(struct plate *plate)
{
    free(plate->now);
    free(plate->next);
}

static void plate_exchange(struct plate *plate)
{
    double *first = row(plate, plate->now, 1), *last = row(plate, plate->now, plate->rows);
    MPI_Sendrecv(first, plate->size, MPI_DOUBLE, plate->above, 0, last + plate->size, plate->size, MPI_DOUBLE, plate->below,
                 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(last, plate->size, MPI_DOUBLE, plate->below, 1, first - plate->size, plate->size, MPI_DOUBLE, plate->above,
                 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

// Rows from..to - 1 of the next state; returns the largest change. The plate's edge stays cold.
static double plate_relax(const struct plate *plate, int from, int to)
{
    double residual = 0;
    for (int i = from; i < to; i++) {
        const double *here = row(plate, plate->now, i), *up = here - plate->size, *down = here + plate->size;
        double *next = row(plate, plate->next, i);
        for (int j = 1; j < plate->size - 1; j++) {
            next[j] = (up[j] + down[j] + here[j - 1] + here[j + 1]) / 4;
            residual = fmax(residual, fabs(next[j] - here[j]));
        }
    }
    return residual;
}

static void plate_swap(struct plate *plate)
{
    double *now = plate->now;
    plate->now = plate->next;
    plate->next = now;
}

// -- the pool

static void pool_band(struct pool *pool, int band)
{
    int rows = pool->plate->rows, bands = pool->workers + 1;
    int from = 1 + rows * band / bands, to = 1 + rows * (band + 1) / bands;
    pool->residuals[band] = plate_relax(pool->plate, from, to);
}

static void *pool_worker(void *argument)
{
    struct worker worker = *(struct worker *)argument;
    struct pool *pool = worker.pool;
    free(argument);

    char name[32];
    snprintf(name, sizeof name, "worker %d", worker.band);
    sl_thread_name(name);
    for (;;) {
        pthread_barrier_wait(&pool->gate);
        if (!pool->running)
            return NULL;
        sl_enter(compute);
        pool_band(pool, worker.band);
        sl_exit(compute);
        pthread_barrier_wait(&pool->done);
    }
}

static int pool_start(struct pool *pool, struct plate *plate, int workers)
{
    *pool = (struct pool){.workers = workers, .running = 1, .plate = plate};
    pool->residuals = calloc((size_t)workers + 1, sizeof *pool->residuals);
    pool->threads = calloc((size_t)workers + 1, sizeof *pool->threads);
    if (!pool->residuals || !pool->threads)
        return -1;
    pthread_barrier_init(&pool->gate, NULL, (unsigned)workers + 1);
    pthread_barrier_init(&pool->done, NULL, (unsigned)workers + 1);
    for (int i = 0; i < workers; i++) {
        struct worker *worker = malloc(sizeof *worker);
        if (!worker)
            return -1;
        *worker = (struct worker){.pool = pool, .band = i + 1};
        if (pthread_create(&pool->threads[i], NULL, pool_worker, worker) != 0)
            return -1;
    }
    return 0;
}

// All bands once; returns the rank's largest change.
static double pool_compute(struct pool *pool)
{
    pthread_barrier_wait(&pool->gate);
    pool_band(pool, 0);
    pthread_barrier_wait(&pool->done);
    double residual = 0;
    for (int band = 0; band <= pool->workers; band++)
        residual = fmax(residual, pool->residuals[band]);
    return residual;
}

static void pool_stop(struct pool *pool)
{
    pool->running = 0;
    pthread_barrier_wait(&pool->gate);
    for (int i = 0; i < pool->workers; i++)
        pthread_join(pool->threads[i], NULL);
    pthread_barrier_destroy(&pool->gate);
    pthread_barrier_destroy(&pool->done);
    free(pool->threads);
    free(pool->residuals);
}

// -- the program

static double simulate(struct plate *plate, struct pool *pool, int steps)
{
    double residual = 0;
    for (int i = 0; i < steps; i++) {
        sl_enter(step);
        sl_enter(halo);
        plate_exchange(plate);
        sl_next(compute);  // leaves halo and enters compute with one reading of the clock
        double mine = pool_compute(pool);
        sl_next(allreduce);
        MPI_Allreduce(&mine, &residual, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        sl_exit(allreduce);
        plate_swap(plate);
        sl_exit(step);
    }
    return residual;
}

// The sum over all ranks, on rank 0; in rank order, so that it is the same each time.
static double total(const struct plate *plate, int rank, int ranks)
{
    double mine = 0, sum = 0;
    for (int i = 1; i <= plate->rows; i++)
        for (int j = 0; j < plate->size; j++)
            mine += row(plate, plate->now, i)[j];
    double *parts = calloc((size_t)ranks, sizeof *parts);
    if (!parts)
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Gather(&mine, 1, MPI_DOUBLE, parts, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    for (int i = 0; rank == 0 && i < ranks; i++)
        sum += parts[i];
    free(parts);
    return sum;
}

static int options(int argc, char **argv, int *size, int *steps, int *workers)
{
    int option;
    while ((option = getopt(argc, argv, "n:s:t:")) != -1) {
        if (option == '?')
            return -1;
        int *number = option == 'n' ? size : option == 's' ? steps : workers;
        *number = atoi(optarg);
    }
    return optind == argc && *size >= 3 && *steps >= 0 && *workers >= 0 ? 0 : -1;
}

int main(int argc, char **argv)
{
    int size = 480, steps = 1000, workers = 2, rank, ranks, threads;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &threads);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (options(argc, argv, &size, &steps, &workers) < 0 || size < ranks) {
        if (rank == 0)
            fprintf(stderr, "usage: heat [-n SIZE] [-s STEPS] [-t WORKERS], SIZE at least 3 and the number of ranks\n");
        MPI_Finalize();
        return 2;
    }

    session = sl_region("scope_profiler.session");  // the root: percentages are of this
    step = sl_region("step");
    halo = sl_region("halo");
    compute = sl_region("compute");
    allreduce = sl_region("allreduce");
    sl_thread_name("main");

    sl_enter(session);
    struct plate plate;
    struct pool pool;
    if (plate_create(&plate, size, rank, ranks) < 0 || pool_start(&pool, &plate, workers) < 0) {
        perror("heat");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    double residual = simulate(&plate, &pool, steps);
    double sum = total(&plate, rank, ranks);
    pool_stop(&pool);
    plate_destroy(&plate);
    sl_exit(session);

    if (rank == 0)
        printf("%d ranks, %d x %d points, %d steps: residual %.12e, sum %.12e\n", ranks, size, size, steps, residual, sum);
    MPI_Finalize();
    return 0;
}

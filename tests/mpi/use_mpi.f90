! The same with the mpi module, whose procedures are those of mpif.h.
program use_mpi
    use mpi
    implicit none
    integer :: rank, ranks, i, total, request, file, error

    call MPI_INIT(error)
    call MPI_COMM_RANK(MPI_COMM_WORLD, rank, error)
    call MPI_COMM_SIZE(MPI_COMM_WORLD, ranks, error)
    do i = 1, 20
        total = rank
        call MPI_ALLREDUCE(MPI_IN_PLACE, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
        if (total /= ranks * (ranks - 1) / 2) call MPI_ABORT(MPI_COMM_WORLD, 1, error)
        call MPI_IBARRIER(MPI_COMM_WORLD, request, error)
        call MPI_WAIT(request, MPI_STATUS_IGNORE, error)
    end do
    call MPI_FILE_OPEN(MPI_COMM_WORLD, "usempi.bin", MPI_MODE_CREATE + MPI_MODE_WRONLY, MPI_INFO_NULL, file, error)
    call MPI_FILE_CLOSE(file, error)
    call MPI_FINALIZE(error)
    if (rank == 0) print *, "done"
end program use_mpi

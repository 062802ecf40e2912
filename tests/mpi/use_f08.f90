! An MPI program in Fortran that knows nothing of scoped-lane, with mpi_f08; it goes on after MPI has ended.
program use_f08
    use mpi_f08
    implicit none
    integer :: rank, ranks, i, total
    type(MPI_File) :: file
    type(MPI_Request) :: request
    double precision :: x

    call MPI_Init()
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks)
    do i = 1, 20
        total = rank
        call MPI_Allreduce(MPI_IN_PLACE, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
        if (total /= ranks * (ranks - 1) / 2) call MPI_Abort(MPI_COMM_WORLD, 1)
        call MPI_Ibarrier(MPI_COMM_WORLD, request)
        call MPI_Wait(request, MPI_STATUS_IGNORE)
    end do
    call MPI_File_open(MPI_COMM_WORLD, "f08.bin", MPI_MODE_CREATE + MPI_MODE_WRONLY, MPI_INFO_NULL, file)
    call MPI_File_close(file)
    call MPI_Finalize()

    x = 1
    do i = 1, 1000000
        x = x + sqrt(x)
    end do
    if (rank == 0) print *, "done", x > 0
end program use_f08

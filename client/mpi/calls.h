// What libscoped_lane_mpi.so stands in for: every call of MPI-3.1 that may wait for somebody or something, and those that begin and end
// such a wait.
//
//     X(name, name in lower case, parameters in Fortran, parameters in C, their types)
//
// In Fortran all parameters are addresses; one more is for the error code, and behind it each text has its length.
#ifndef SL_CLIENT_MPI_CALLS_H
#define SL_CLIENT_MPI_CALLS_H

#define MPI_CALLS(X)                                                                                                                      \
    /* starting and ending */                                                                                                             \
    X(Init, init, 1, 2, int *, char ***)                                                                                                  \
    X(Init_thread, init_thread, 3, 4, int *, char ***, int, int *)                                                                        \
    X(Finalize, finalize, 1, 0)                                                                                                           \
    X(Abort, abort, 3, 2, MPI_Comm, int)                                                                                                  \
    /* from one to another */                                                                                                             \
    X(Send, send, 7, 6, const void *, int, MPI_Datatype, int, int, MPI_Comm)                                                              \
    X(Bsend, bsend, 7, 6, const void *, int, MPI_Datatype, int, int, MPI_Comm)                                                            \
    X(Ssend, ssend, 7, 6, const void *, int, MPI_Datatype, int, int, MPI_Comm)                                                            \
    X(Rsend, rsend, 7, 6, const void *, int, MPI_Datatype, int, int, MPI_Comm)                                                            \
    X(Recv, recv, 8, 7, void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status *)                                                      \
    X(Sendrecv, sendrecv, 13, 12, const void *, int, MPI_Datatype, int, int, void *, int, MPI_Datatype, int, int, MPI_Comm,               \
      MPI_Status *)                                                                                                                       \
    X(Sendrecv_replace, sendrecv_replace, 10, 9, void *, int, MPI_Datatype, int, int, int, int, MPI_Comm, MPI_Status *)                   \
    X(Probe, probe, 5, 4, int, int, MPI_Comm, MPI_Status *)                                                                               \
    X(Mprobe, mprobe, 6, 5, int, int, MPI_Comm, MPI_Message *, MPI_Status *)                                                              \
    X(Mrecv, mrecv, 6, 5, void *, int, MPI_Datatype, MPI_Message *, MPI_Status *)                                                         \
    X(Iprobe, iprobe, 6, 5, int, int, MPI_Comm, int *, MPI_Status *)                                                                      \
    X(Improbe, improbe, 7, 6, int, int, MPI_Comm, int *, MPI_Message *, MPI_Status *)                                                     \
    X(Imrecv, imrecv, 6, 5, void *, int, MPI_Datatype, MPI_Message *, MPI_Request *)                                                      \
    X(Isend, isend, 8, 7, const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *)                                             \
    X(Ibsend, ibsend, 8, 7, const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *)                                           \
    X(Issend, issend, 8, 7, const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *)                                           \
    X(Irsend, irsend, 8, 7, const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *)                                           \
    X(Irecv, irecv, 8, 7, void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *)                                                   \
    X(Start, start, 2, 1, MPI_Request *)                                                                                                  \
    X(Startall, startall, 3, 2, int, MPI_Request *)                                                                                       \
    X(Buffer_detach, buffer_detach, 3, 2, void *, int *)                                                                                  \
    /* waiting and testing */                                                                                                             \
    X(Wait, wait, 3, 2, MPI_Request *, MPI_Status *)                                                                                      \
    X(Waitany, waitany, 5, 4, int, MPI_Request *, int *, MPI_Status *)                                                                    \
    X(Waitall, waitall, 4, 3, int, MPI_Request *, MPI_Status *)                                                                           \
    X(Waitsome, waitsome, 6, 5, int, MPI_Request *, int *, int *, MPI_Status *)                                                           \
    X(Test, test, 4, 3, MPI_Request *, int *, MPI_Status *)                                                                               \
    X(Testany, testany, 6, 5, int, MPI_Request *, int *, int *, MPI_Status *)                                                             \
    X(Testall, testall, 5, 4, int, MPI_Request *, int *, MPI_Status *)                                                                    \
    X(Testsome, testsome, 6, 5, int, MPI_Request *, int *, int *, MPI_Status *)                                                           \
    X(Request_get_status, request_get_status, 4, 3, MPI_Request, int *, MPI_Status *)                                                     \
    /* collective */                                                                                                                      \
    X(Barrier, barrier, 2, 1, MPI_Comm)                                                                                                   \
    X(Bcast, bcast, 6, 5, void *, int, MPI_Datatype, int, MPI_Comm)                                                                       \
    X(Gather, gather, 9, 8, const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm)                                    \
    X(Gatherv, gatherv, 10, 9, const void *, int, MPI_Datatype, void *, const int *, const int *, MPI_Datatype, int, MPI_Comm)            \
    X(Scatter, scatter, 9, 8, const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm)                                  \
    X(Scatterv, scatterv, 10, 9, const void *, const int *, const int *, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm)          \
    X(Allgather, allgather, 8, 7, const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm)                                   \
    X(Allgatherv, allgatherv, 9, 8, const void *, int, MPI_Datatype, void *, const int *, const int *, MPI_Datatype, MPI_Comm)            \
    X(Alltoall, alltoall, 8, 7, const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm)                                     \
    X(Alltoallv, alltoallv, 10, 9, const void *, const int *, const int *, MPI_Datatype, void *, const int *, const int *,                \
      MPI_Datatype, MPI_Comm)                                                                                                             \
    X(Alltoallw, alltoallw, 10, 9, const void *, const int *, const int *, const MPI_Datatype *, void *, const int *, const int           \
      *, const MPI_Datatype *, MPI_Comm)                                                                                                  \
    X(Reduce, reduce, 8, 7, const void *, void *, int, MPI_Datatype, MPI_Op, int, MPI_Comm)                                               \
    X(Allreduce, allreduce, 7, 6, const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm)                                              \
    X(Reduce_scatter, reduce_scatter, 7, 6, const void *, void *, const int *, MPI_Datatype, MPI_Op, MPI_Comm)                            \
    X(Reduce_scatter_block, reduce_scatter_block, 7, 6, const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm)                        \
    X(Scan, scan, 7, 6, const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm)                                                        \
    X(Exscan, exscan, 7, 6, const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm)                                                    \
    X(Neighbor_allgather, neighbor_allgather, 8, 7, const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm)                 \
    X(Neighbor_allgatherv, neighbor_allgatherv, 9, 8, const void *, int, MPI_Datatype, void *, const int *, const int *,                  \
      MPI_Datatype, MPI_Comm)                                                                                                             \
    X(Neighbor_alltoall, neighbor_alltoall, 8, 7, const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm)                   \
    X(Neighbor_alltoallv, neighbor_alltoallv, 10, 9, const void *, const int *, const int *, MPI_Datatype, void *, const int *,           \
      const int *, MPI_Datatype, MPI_Comm)                                                                                                \
    X(Neighbor_alltoallw, neighbor_alltoallw, 10, 9, const void *, const int *, const MPI_Aint *, const MPI_Datatype *, void *,           \
      const int *, const MPI_Aint *, const MPI_Datatype *, MPI_Comm)                                                                      \
    /* collective, begun */                                                                                                               \
    X(Ibarrier, ibarrier, 3, 2, MPI_Comm, MPI_Request *)                                                                                  \
    X(Ibcast, ibcast, 7, 6, void *, int, MPI_Datatype, int, MPI_Comm, MPI_Request *)                                                      \
    X(Igather, igather, 10, 9, const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm, MPI_Request *)                  \
    X(Igatherv, igatherv, 11, 10, const void *, int, MPI_Datatype, void *, const int *, const int *, MPI_Datatype, int,                   \
      MPI_Comm, MPI_Request *)                                                                                                            \
    X(Iscatter, iscatter, 10, 9, const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm, MPI_Request *)                \
    X(Iscatterv, iscatterv, 11, 10, const void *, const int *, const int *, MPI_Datatype, void *, int, MPI_Datatype, int,                 \
      MPI_Comm, MPI_Request *)                                                                                                            \
    X(Iallgather, iallgather, 9, 8, const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm, MPI_Request *)                  \
    X(Iallgatherv, iallgatherv, 10, 9, const void *, int, MPI_Datatype, void *, const int *, const int *, MPI_Datatype,                   \
      MPI_Comm, MPI_Request *)                                                                                                            \
    X(Ialltoall, ialltoall, 9, 8, const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm, MPI_Request *)                    \
    X(Ialltoallv, ialltoallv, 11, 10, const void *, const int *, const int *, MPI_Datatype, void *, const int *, const int *,             \
      MPI_Datatype, MPI_Comm, MPI_Request *)                                                                                              \
    X(Ialltoallw, ialltoallw, 11, 10, const void *, const int *, const int *, const MPI_Datatype *, void *, const int *, const            \
      int *, const MPI_Datatype *, MPI_Comm, MPI_Request *)                                                                               \
    X(Ireduce, ireduce, 9, 8, const void *, void *, int, MPI_Datatype, MPI_Op, int, MPI_Comm, MPI_Request *)                              \
    X(Iallreduce, iallreduce, 8, 7, const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *)                             \
    X(Ireduce_scatter, ireduce_scatter, 8, 7, const void *, void *, const int *, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *)           \
    X(Ireduce_scatter_block, ireduce_scatter_block, 8, 7, const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request          \
      *)                                                                                                                                  \
    X(Iscan, iscan, 8, 7, const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *)                                       \
    X(Iexscan, iexscan, 8, 7, const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *)                                   \
    X(Ineighbor_allgather, ineighbor_allgather, 9, 8, const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm,               \
      MPI_Request *)                                                                                                                      \
    X(Ineighbor_allgatherv, ineighbor_allgatherv, 10, 9, const void *, int, MPI_Datatype, void *, const int *, const int *,               \
      MPI_Datatype, MPI_Comm, MPI_Request *)                                                                                              \
    X(Ineighbor_alltoall, ineighbor_alltoall, 9, 8, const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm,                 \
      MPI_Request *)                                                                                                                      \
    X(Ineighbor_alltoallv, ineighbor_alltoallv, 11, 10, const void *, const int *, const int *, MPI_Datatype, void *, const int           \
      *, const int *, MPI_Datatype, MPI_Comm, MPI_Request *)                                                                              \
    X(Ineighbor_alltoallw, ineighbor_alltoallw, 11, 10, const void *, const int *, const MPI_Aint *, const MPI_Datatype *, void           \
      *, const int *, const MPI_Aint *, const MPI_Datatype *, MPI_Comm, MPI_Request *)                                                    \
    /* communicators, made together */                                                                                                    \
    X(Comm_dup, comm_dup, 3, 2, MPI_Comm, MPI_Comm *)                                                                                     \
    X(Comm_dup_with_info, comm_dup_with_info, 4, 3, MPI_Comm, MPI_Info, MPI_Comm *)                                                       \
    X(Comm_idup, comm_idup, 4, 3, MPI_Comm, MPI_Comm *, MPI_Request *)                                                                    \
    X(Comm_create, comm_create, 4, 3, MPI_Comm, MPI_Group, MPI_Comm *)                                                                    \
    X(Comm_create_group, comm_create_group, 5, 4, MPI_Comm, MPI_Group, int, MPI_Comm *)                                                   \
    X(Comm_split, comm_split, 5, 4, MPI_Comm, int, int, MPI_Comm *)                                                                       \
    X(Comm_split_type, comm_split_type, 6, 5, MPI_Comm, int, int, MPI_Info, MPI_Comm *)                                                   \
    X(Comm_free, comm_free, 2, 1, MPI_Comm *)                                                                                             \
    X(Comm_disconnect, comm_disconnect, 2, 1, MPI_Comm *)                                                                                 \
    X(Comm_accept, comm_accept, 7, 5, const char *, MPI_Info, int, MPI_Comm, MPI_Comm *)                                                  \
    X(Comm_connect, comm_connect, 7, 5, const char *, MPI_Info, int, MPI_Comm, MPI_Comm *)                                                \
    X(Comm_join, comm_join, 3, 2, int, MPI_Comm *)                                                                                        \
    X(Comm_spawn, comm_spawn, 11, 8, const char *, char **, int, MPI_Info, int, MPI_Comm, MPI_Comm *, int *)                              \
    X(Comm_spawn_multiple, comm_spawn_multiple, 12, 9, int, char **, char ***, const int *, const MPI_Info *, int, MPI_Comm,              \
      MPI_Comm *, int *)                                                                                                                  \
    X(Intercomm_create, intercomm_create, 7, 6, MPI_Comm, int, MPI_Comm, int, int, MPI_Comm *)                                            \
    X(Intercomm_merge, intercomm_merge, 4, 3, MPI_Comm, int, MPI_Comm *)                                                                  \
    X(Cart_create, cart_create, 7, 6, MPI_Comm, int, const int *, const int *, int, MPI_Comm *)                                           \
    X(Cart_sub, cart_sub, 4, 3, MPI_Comm, const int *, MPI_Comm *)                                                                        \
    X(Graph_create, graph_create, 7, 6, MPI_Comm, int, const int *, const int *, int, MPI_Comm *)                                         \
    X(Dist_graph_create, dist_graph_create, 10, 9, MPI_Comm, int, const int *, const int *, const int *, const int *, MPI_Info,           \
      int, MPI_Comm *)                                                                                                                    \
    X(Dist_graph_create_adjacent, dist_graph_create_adjacent, 11, 10, MPI_Comm, int, const int *, const int *, int, const int *,          \
      const int *, MPI_Info, int, MPI_Comm *)                                                                                             \
    /* windows */                                                                                                                         \
    X(Win_create, win_create, 7, 6, void *, MPI_Aint, int, MPI_Info, MPI_Comm, MPI_Win *)                                                 \
    X(Win_create_dynamic, win_create_dynamic, 4, 3, MPI_Info, MPI_Comm, MPI_Win *)                                                        \
    X(Win_allocate, win_allocate, 7, 6, MPI_Aint, int, MPI_Info, MPI_Comm, void *, MPI_Win *)                                             \
    X(Win_allocate_shared, win_allocate_shared, 7, 6, MPI_Aint, int, MPI_Info, MPI_Comm, void *, MPI_Win *)                               \
    X(Win_free, win_free, 2, 1, MPI_Win *)                                                                                                \
    X(Win_fence, win_fence, 3, 2, int, MPI_Win)                                                                                           \
    X(Win_start, win_start, 4, 3, MPI_Group, int, MPI_Win)                                                                                \
    X(Win_post, win_post, 4, 3, MPI_Group, int, MPI_Win)                                                                                  \
    X(Win_complete, win_complete, 2, 1, MPI_Win)                                                                                          \
    X(Win_wait, win_wait, 2, 1, MPI_Win)                                                                                                  \
    X(Win_test, win_test, 3, 2, MPI_Win, int *)                                                                                           \
    X(Win_lock, win_lock, 5, 4, int, int, int, MPI_Win)                                                                                   \
    X(Win_lock_all, win_lock_all, 3, 2, int, MPI_Win)                                                                                     \
    X(Win_unlock, win_unlock, 3, 2, int, MPI_Win)                                                                                         \
    X(Win_unlock_all, win_unlock_all, 2, 1, MPI_Win)                                                                                      \
    X(Win_flush, win_flush, 3, 2, int, MPI_Win)                                                                                           \
    X(Win_flush_all, win_flush_all, 2, 1, MPI_Win)                                                                                        \
    X(Win_flush_local, win_flush_local, 3, 2, int, MPI_Win)                                                                               \
    X(Win_flush_local_all, win_flush_local_all, 2, 1, MPI_Win)                                                                            \
    X(Win_sync, win_sync, 2, 1, MPI_Win)                                                                                                  \
    X(Put, put, 9, 8, const void *, int, MPI_Datatype, int, MPI_Aint, int, MPI_Datatype, MPI_Win)                                         \
    X(Get, get, 9, 8, void *, int, MPI_Datatype, int, MPI_Aint, int, MPI_Datatype, MPI_Win)                                               \
    X(Accumulate, accumulate, 10, 9, const void *, int, MPI_Datatype, int, MPI_Aint, int, MPI_Datatype, MPI_Op, MPI_Win)                  \
    X(Get_accumulate, get_accumulate, 13, 12, const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Aint, int,             \
      MPI_Datatype, MPI_Op, MPI_Win)                                                                                                      \
    X(Fetch_and_op, fetch_and_op, 8, 7, const void *, void *, MPI_Datatype, int, MPI_Aint, MPI_Op, MPI_Win)                               \
    X(Compare_and_swap, compare_and_swap, 8, 7, const void *, const void *, void *, MPI_Datatype, int, MPI_Aint, MPI_Win)                 \
    X(Rput, rput, 10, 9, const void *, int, MPI_Datatype, int, MPI_Aint, int, MPI_Datatype, MPI_Win, MPI_Request *)                       \
    X(Rget, rget, 10, 9, void *, int, MPI_Datatype, int, MPI_Aint, int, MPI_Datatype, MPI_Win, MPI_Request *)                             \
    X(Raccumulate, raccumulate, 11, 10, const void *, int, MPI_Datatype, int, MPI_Aint, int, MPI_Datatype, MPI_Op, MPI_Win,               \
      MPI_Request *)                                                                                                                      \
    X(Rget_accumulate, rget_accumulate, 14, 13, const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Aint, int,           \
      MPI_Datatype, MPI_Op, MPI_Win, MPI_Request *)                                                                                       \
    /* files */                                                                                                                           \
    X(File_open, file_open, 7, 5, MPI_Comm, const char *, int, MPI_Info, MPI_File *)                                                      \
    X(File_close, file_close, 2, 1, MPI_File *)                                                                                           \
    X(File_delete, file_delete, 4, 2, const char *, MPI_Info)                                                                             \
    X(File_set_size, file_set_size, 3, 2, MPI_File, MPI_Offset)                                                                           \
    X(File_preallocate, file_preallocate, 3, 2, MPI_File, MPI_Offset)                                                                     \
    X(File_set_view, file_set_view, 8, 6, MPI_File, MPI_Offset, MPI_Datatype, MPI_Datatype, const char *, MPI_Info)                       \
    X(File_sync, file_sync, 2, 1, MPI_File)                                                                                               \
    X(File_seek, file_seek, 4, 3, MPI_File, MPI_Offset, int)                                                                              \
    X(File_seek_shared, file_seek_shared, 4, 3, MPI_File, MPI_Offset, int)                                                                \
    X(File_read, file_read, 6, 5, MPI_File, void *, int, MPI_Datatype, MPI_Status *)                                                      \
    X(File_read_all, file_read_all, 6, 5, MPI_File, void *, int, MPI_Datatype, MPI_Status *)                                              \
    X(File_read_at, file_read_at, 7, 6, MPI_File, MPI_Offset, void *, int, MPI_Datatype, MPI_Status *)                                    \
    X(File_read_at_all, file_read_at_all, 7, 6, MPI_File, MPI_Offset, void *, int, MPI_Datatype, MPI_Status *)                            \
    X(File_read_shared, file_read_shared, 6, 5, MPI_File, void *, int, MPI_Datatype, MPI_Status *)                                        \
    X(File_read_ordered, file_read_ordered, 6, 5, MPI_File, void *, int, MPI_Datatype, MPI_Status *)                                      \
    X(File_write, file_write, 6, 5, MPI_File, const void *, int, MPI_Datatype, MPI_Status *)                                              \
    X(File_write_all, file_write_all, 6, 5, MPI_File, const void *, int, MPI_Datatype, MPI_Status *)                                      \
    X(File_write_at, file_write_at, 7, 6, MPI_File, MPI_Offset, const void *, int, MPI_Datatype, MPI_Status *)                            \
    X(File_write_at_all, file_write_at_all, 7, 6, MPI_File, MPI_Offset, const void *, int, MPI_Datatype, MPI_Status *)                    \
    X(File_write_shared, file_write_shared, 6, 5, MPI_File, const void *, int, MPI_Datatype, MPI_Status *)                                \
    X(File_write_ordered, file_write_ordered, 6, 5, MPI_File, const void *, int, MPI_Datatype, MPI_Status *)                              \
    X(File_read_all_begin, file_read_all_begin, 5, 4, MPI_File, void *, int, MPI_Datatype)                                                \
    X(File_read_all_end, file_read_all_end, 4, 3, MPI_File, void *, MPI_Status *)                                                         \
    X(File_read_at_all_begin, file_read_at_all_begin, 6, 5, MPI_File, MPI_Offset, void *, int, MPI_Datatype)                              \
    X(File_read_at_all_end, file_read_at_all_end, 4, 3, MPI_File, void *, MPI_Status *)                                                   \
    X(File_read_ordered_begin, file_read_ordered_begin, 5, 4, MPI_File, void *, int, MPI_Datatype)                                        \
    X(File_read_ordered_end, file_read_ordered_end, 4, 3, MPI_File, void *, MPI_Status *)                                                 \
    X(File_write_all_begin, file_write_all_begin, 5, 4, MPI_File, const void *, int, MPI_Datatype)                                        \
    X(File_write_all_end, file_write_all_end, 4, 3, MPI_File, const void *, MPI_Status *)                                                 \
    X(File_write_at_all_begin, file_write_at_all_begin, 6, 5, MPI_File, MPI_Offset, const void *, int, MPI_Datatype)                      \
    X(File_write_at_all_end, file_write_at_all_end, 4, 3, MPI_File, const void *, MPI_Status *)                                           \
    X(File_write_ordered_begin, file_write_ordered_begin, 5, 4, MPI_File, const void *, int, MPI_Datatype)                                \
    X(File_write_ordered_end, file_write_ordered_end, 4, 3, MPI_File, const void *, MPI_Status *)                                         \
    X(File_iread, file_iread, 6, 5, MPI_File, void *, int, MPI_Datatype, MPI_Request *)                                                   \
    X(File_iread_all, file_iread_all, 6, 5, MPI_File, void *, int, MPI_Datatype, MPI_Request *)                                           \
    X(File_iread_at, file_iread_at, 7, 6, MPI_File, MPI_Offset, void *, int, MPI_Datatype, MPI_Request *)                                 \
    X(File_iread_at_all, file_iread_at_all, 7, 6, MPI_File, MPI_Offset, void *, int, MPI_Datatype, MPI_Request *)                         \
    X(File_iread_shared, file_iread_shared, 6, 5, MPI_File, void *, int, MPI_Datatype, MPI_Request *)                                     \
    X(File_iwrite, file_iwrite, 6, 5, MPI_File, const void *, int, MPI_Datatype, MPI_Request *)                                           \
    X(File_iwrite_all, file_iwrite_all, 6, 5, MPI_File, const void *, int, MPI_Datatype, MPI_Request *)                                   \
    X(File_iwrite_at, file_iwrite_at, 7, 6, MPI_File, MPI_Offset, const void *, int, MPI_Datatype, MPI_Request *)                         \
    X(File_iwrite_at_all, file_iwrite_at_all, 7, 6, MPI_File, MPI_Offset, const void *, int, MPI_Datatype, MPI_Request *)                 \
    X(File_iwrite_shared, file_iwrite_shared, 6, 5, MPI_File, const void *, int, MPI_Datatype, MPI_Request *)

// Names that Fortran has beside: of the same call, where its result is a C pointer.
#define MPI_FORTRAN_CALLS(X) \
    X(Win_allocate, win_allocate_cptr, 7) \
    X(Win_allocate_shared, win_allocate_shared_cptr, 7)

#endif

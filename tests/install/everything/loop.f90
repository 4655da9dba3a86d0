! A loop in Fortran.
program loop
  use, intrinsic :: iso_c_binding
  implicit none

  type, bind(c) :: samples_type
    integer(c_int64_t) :: count, length
    type(c_ptr) :: ids, labels, features
    integer(c_int64_t) :: width
    type(c_ptr) :: classes, targets
    integer(c_int64_t) :: outputs
  end type

  type, bind(c) :: report_type
    integer(c_int64_t) :: step
    real(c_double) :: loss, grad_norm, learning_rate, step_seconds
    integer(c_int64_t) :: tokens
  end type

  interface
    type(c_ptr) function shardline_create(config) bind(c)
      import :: c_ptr, c_char
      character(kind=c_char), intent(in) :: config(*)
    end function
    integer(c_int) function shardline_step(trainer, samples, report) bind(c)
      import :: c_ptr, c_int, samples_type, report_type
      type(c_ptr), value :: trainer
      type(samples_type), intent(in) :: samples
      type(report_type), intent(out) :: report
    end function
    subroutine shardline_destroy(trainer) bind(c)
      import :: c_ptr
      type(c_ptr), value :: trainer
    end subroutine
  end interface

  character(len=*), parameter :: config = '{"model": {"config": {"model_type": "gpt2", "vocab_size": 31, ' // &
    '"n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}}, "data": {"sequence_length": 16}, ' // &
    '"training": {"global_batch_size": 4, "max_steps": 3}, "runtime": {"device": "cpu"}}'
  integer(c_int64_t), target :: ids(16, 4)  ! Fortran's first index varies fastest
  type(samples_type) :: samples
  type(report_type) :: report
  type(c_ptr) :: trainer
  integer :: i

  trainer = shardline_create(config // c_null_char)
  if (.not. c_associated(trainer)) error stop 'create'
  ids = reshape([(mod(7 * i, 31), i = 1, 64)], [16, 4])
  samples = samples_type(4, 16, c_loc(ids), c_null_ptr, c_null_ptr, 0, c_null_ptr, c_null_ptr, 0)
  do i = 1, 3
    if (shardline_step(trainer, samples, report) /= 0) error stop 'step'
  end do
  print '(a, i0, a)', 'trained ', report%step, ' steps'
  call shardline_destroy(trainer)
end program

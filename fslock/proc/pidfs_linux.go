package proc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// probePidfs returns the inode of our own pidfd, 0 where pidfds have none of their own, and why processes cannot be
// found by it. Kernels before 6.9 give every pidfd one shared inode, those before 6.14 do not open by it, and a
// seccomp filter may forbid it. A handle in a form that the kernel does not know is answered like a reaped process,
// so the form is taken from our own handle, and only if that handle opens.
func probePidfs(self int) (ino uint64, handleType int32, why string) {
	fd, err := unix.PidfdOpen(self, 0)
	if err != nil {
		return 0, 0, fmt.Sprintf("pidfd_open: %v", err)
	}
	defer func() { _ = unix.Close(fd) }()
	var fs unix.Statfs_t
	var st unix.Stat_t
	if err := errors.Join(unix.Fstatfs(fd, &fs), unix.Fstat(fd, &st)); err != nil {
		return 0, 0, err.Error()
	}
	if fs.Type != unix.PID_FS_MAGIC {
		return 0, 0, "the kernel has no pidfs"
	}
	ino = st.Ino
	handle, _, err := unix.NameToHandleAt(fd, "", unix.AT_EMPTY_PATH)
	if err != nil {
		return ino, 0, fmt.Sprintf("name_to_handle_at on pidfs: %v", err)
	}
	if !bytes.Equal(handle.Bytes(), pidfsHandle(ino)) {
		return ino, 0, "the kernel's pidfs handles have another form"
	}
	again, err := unix.OpenByHandleAt(fd, handle, unix.O_CLOEXEC)
	if err != nil {
		return ino, 0, fmt.Sprintf("open_by_handle_at on pidfs: %v", err)
	}
	_ = unix.Close(again)
	return ino, handle.Type(), ""
}

func pidfsHandle(ino uint64) []byte { return binary.NativeEndian.AppendUint64(nil, ino) }

func (l *linux) Pidfd(ino uint64) (int, error) {
	if l.pidfs != "" {
		return 0, errors.New(l.pidfs)
	}
	mount, err := unix.PidfdOpen(l.self.PID, 0)
	if err != nil {
		return 0, fmt.Errorf("pidfd_open: %w", err)
	}
	defer func() { _ = unix.Close(mount) }()
	fd, err := unix.OpenByHandleAt(mount, unix.NewFileHandle(l.handleType, pidfsHandle(ino)), unix.O_CLOEXEC)
	if errors.Is(err, unix.ESTALE) || errors.Is(err, unix.ESRCH) {
		return 0, ErrReaped
	}
	if err != nil {
		return 0, fmt.Errorf("open_by_handle_at on pidfs: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	// A process that is reaped but leaves its number to its process group still opens.
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_PID}
	err = unix.IoctlPidfdInfo(fd, &info)
	switch {
	case errors.Is(err, unix.ESRCH):
		return 0, ErrReaped
	case err != nil:
		return 0, fmt.Errorf("PIDFD_GET_INFO: %w", err)
	case info.Pid == 0 || info.Pid != info.Tgid:
		return 0, errors.New("the pidfd is not that of a process here")
	}
	return int(info.Pid), nil
}

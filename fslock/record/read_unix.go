//go:build unix

package record

import (
	"cmp"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A descriptor is read through bare system calls: package os would register it with its poller first, which
// costs as much as the read.
type descriptor int

func openFile(path string) (handle, error) {
	// O_NOCTTY: a terminal device at the path must not become ours.
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_NOCTTY
	fd, err := retry(func() (int, error) { return unix.Open(path, flags, 0) })
	if err != nil {
		return nil, err
	}
	return descriptor(fd), nil
}

func (d descriptor) stat() (Stat, Stamp, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(d), &st); err != nil {
		return Stat{}, Stamp{}, err
	}
	return Stat{
		Dev:     widen(st.Dev),
		Ino:     widen(st.Ino),
		Size:    st.Size,
		ModTime: time.Unix(st.Mtim.Unix()),
		Mode:    fileMode(uint32(widen(st.Mode))),
		UID:     st.Uid,
	}, stampOf(&st), nil
}

func (d descriptor) readAt(b []byte, offset int64) (int, error) {
	return retry(func() (int, error) { return unix.Pread(int(d), b, offset) })
}

// After close not even EINTR leaves a descriptor that could be closed again.
func (d descriptor) close() { _ = unix.Close(int(d)) }

// retry repeats a call that a signal interrupted, as a slow file system allows.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR { //nolint:errorlint // bare system calls return bare numbers
			return n, err
		}
	}
}

// widen takes the numbers of Stat_t, whose types differ from system to system.
func widen[T ~int32 | ~uint16 | ~uint32 | ~uint64](v T) uint64 { return uint64(v) }

func fileMode(st uint32) fs.FileMode {
	mode := fs.FileMode(st & 0o777)
	switch st & unix.S_IFMT {
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		mode |= fs.ModeSocket
	case unix.S_IFBLK:
		mode |= fs.ModeDevice
	case unix.S_IFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	case unix.S_IFREG:
	default:
		mode |= fs.ModeIrregular
	}
	if st&unix.S_ISUID != 0 {
		mode |= fs.ModeSetuid
	}
	if st&unix.S_ISGID != 0 {
		mode |= fs.ModeSetgid
	}
	if st&unix.S_ISVTX != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}

func owner(fi fs.FileInfo) (uid uint32, ok bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return st.Uid, true
}

const canSyncDir = true

// adopt gives what root has just made in somebody else's directory to that one: with mode 0600 its own programs could
// not read it, and an AgentMux that cannot read its counter begins anew with 1. Where the system refuses that, it is
// root's.
func adopt(f *os.File, dir string) {
	if os.Geteuid() != 0 {
		return
	}
	var st unix.Stat_t
	if unix.Stat(cmp.Or(dir, "."), &st) == nil && st.Uid != 0 {
		_ = f.Chown(int(st.Uid), int(st.Gid))
	}
}

//go:build unix

package cli

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// readerGone returns a channel that is closed when f is a pipe or socket that nobody reads any more: without a write
// nothing else tells of that. Leave ends the watching and waits for that.
func readerGone(f *os.File) (gone <-chan struct{}, leave func()) {
	wake, waker, err := os.Pipe()
	if err != nil {
		return nil, func() {} // it is told of by the next write
	}
	closed, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		if hungUp(f, wake) {
			close(closed)
		}
	}()
	return closed, func() {
		_ = waker.Close()
		<-done
		_ = wake.Close()
	}
}

// hungUp waits until f has no reader, or until wake's other end is closed; then it is false.
func hungUp(f, wake *os.File) (gone bool) {
	out, err := f.SyscallConn()
	if err != nil {
		return false
	}
	in, err := wake.SyscallConn()
	if err != nil {
		return false
	}
	_ = in.Control(func(wakeFD uintptr) {
		_ = out.Control(func(fd uintptr) {
			for {
				fds := []unix.PollFd{{Fd: int32(fd)}, {Fd: int32(wakeFD), Events: unix.POLLIN}}
				_, err := unix.Poll(fds, -1)
				switch {
				case errors.Is(err, unix.EINTR):
					continue
				case err == nil && fds[1].Revents == 0:
					gone = fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
				}
				return
			}
		})
	})
	return gone
}

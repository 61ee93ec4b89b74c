package proc

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxPidfds bounds the descriptors of one Deaths, as does a quarter of those that this process may have.
const maxPidfds = 4096

// endedFD stands for a descriptor of a process that has ended.
const endedFD = -1

// pidfds is the Linux half of Deaths: an epoll of pidfds, which the runtime waits for, so that no thread is blocked.
type pidfds struct {
	ended chan []int
	stop  chan struct{}
	limit int
	epoll *os.File
	conn  syscall.RawConn
	tells sync.WaitGroup

	// mu also covers every epoll_wait: an event must not meet the next descriptor of the same pid.
	mu     sync.Mutex
	fds    map[int]int // by pid
	opened int         // of fds, without those that ended
}

// openPidfds returns nil where processes cannot be watched: src is not this machine, or there is no descriptor.
func openPidfds(src Source) *pidfds {
	if _, here := src.(*linux); !here {
		return nil
	}
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) != nil {
		return nil
	}
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil
	}
	// Else the runtime does not take it for something to wait for, and Close would wait for a death.
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil
	}
	p := &pidfds{
		ended: make(chan []int), stop: make(chan struct{}),
		limit: int(min(lim.Cur/4, maxPidfds)),
		epoll: os.NewFile(uintptr(fd), "epoll"),
		fds:   make(map[int]int),
	}
	if p.conn, err = p.epoll.SyscallConn(); err == nil {
		err = p.epoll.SetReadDeadline(time.Time{}) // refused where the runtime cannot wait
	}
	if err != nil {
		_ = p.epoll.Close()
		return nil
	}
	p.tells.Go(p.tell)
	return p
}

func (p *pidfds) watch(pids []int) (ended, left []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted := make(map[int]bool, len(pids))
	for _, pid := range pids {
		wanted[pid] = true
	}
	for pid, fd := range p.fds {
		if !wanted[pid] {
			p.drop(fd)
			delete(p.fds, pid)
		}
	}
	full := false
	for pid := range wanted {
		if fd, known := p.fds[pid]; known {
			if fd == endedFD {
				left = append(left, pid)
			}
			continue
		}
		if full || p.opened >= p.limit || pid <= 0 || pid > maxPID {
			left = append(left, pid)
			continue
		}
		switch err := p.add(pid); {
		case err == nil:
		case errors.Is(err, unix.ESRCH):
			p.fds[pid] = endedFD
			ended = append(ended, pid)
		default:
			// One more failed call for each of thousands would tell nothing new.
			full = errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) ||
				errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOSPC)
			left = append(left, pid)
		}
	}
	return ended, left
}

func (p *pidfds) add(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	// The pid, not the descriptor, is what an event brings back.
	if err := p.control(unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(pid)}); err != nil {
		_ = unix.Close(fd)
		return err
	}
	p.fds[pid] = fd
	p.opened++
	return nil
}

// drop forgets a descriptor. To close it is not enough: a child on its way to exec has it too, and with it the epoll.
func (p *pidfds) drop(fd int) {
	if fd == endedFD {
		return
	}
	_ = p.control(unix.EPOLL_CTL_DEL, fd, nil)
	_ = unix.Close(fd)
	p.opened--
}

func (p *pidfds) control(op, fd int, event *unix.EpollEvent) error {
	var err error
	if closed := p.conn.Control(func(epoll uintptr) { err = unix.EpollCtl(int(epoll), op, fd, event) }); closed != nil {
		return closed
	}
	return err
}

// tell passes deaths on until it is stopped. While nobody takes them, later ones stay with the kernel.
func (p *pidfds) tell() {
	events := make([]unix.EpollEvent, 256)
	for {
		var pids []int
		err := p.conn.Read(func(epoll uintptr) bool {
			pids = p.take(int(epoll), events)
			return len(pids) > 0
		})
		if err != nil {
			return
		}
		select {
		case p.ended <- pids:
		case <-p.stop:
			return
		}
	}
}

// take returns the pids of which the kernel has a death to tell, and watches them no longer.
func (p *pidfds) take(epoll int, events []unix.EpollEvent) (pids []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := unix.EpollWait(epoll, events, 0)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.EpollWait(epoll, events, 0)
	}
	if err != nil {
		return nil
	}
	for _, ev := range events[:n] {
		pid := int(ev.Fd)
		p.drop(p.fds[pid])
		p.fds[pid] = endedFD
		pids = append(pids, pid)
	}
	return pids
}

func (p *pidfds) close() {
	close(p.stop)
	_ = p.epoll.Close()
	p.tells.Wait()
	for _, fd := range p.fds {
		if fd != endedFD {
			_ = unix.Close(fd)
		}
	}
}

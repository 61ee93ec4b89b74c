package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// ticksPerSecond is USER_HZ, which is 100 on every architecture that Go runs on.
	ticksPerSecond = 100
	// initialPIDNS is the inode of the pid namespace that every machine starts with.
	initialPIDNS = 0xEFFFFFFC
)

const (
	whyNoProc = "/proc is not there, or is that of another pid namespace"
	whyHidden = "processes are hidden here"
)

var errNoProc = errors.New(whyNoProc)

// linux is this machine. It is not changed after localSource.
type linux struct {
	self       Self
	proc       bool // /proc shows our own pid namespace
	clockBoot  bool // btime is what the clocks say
	freezers   []freezer
	handleType int32  // of pidfs
	pidfs      string // why pidfs cannot be asked; empty: it can
}

func localSource() Source {
	l := &linux{self: Self{PID: os.Getpid(), UID: os.Getuid()}}
	if u, err := user.Current(); err == nil {
		l.self.User = u.Username
	}
	l.self.PidfdIno, l.handleType, l.pidfs = probePidfs(l.self.PID)
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		l.self.BootID = strings.TrimSpace(string(b))
	}
	// A /proc of an outer namespace shows us with two pids, one of an inner or foreign one does not show us: in both
	// the numbers are not ours.
	if b, err := os.ReadFile("/proc/self/status"); err == nil {
		nspid := parseStatus(b).nspid
		l.proc = len(nspid) == 1 && nspid[0] == l.self.PID
		if nspid == nil { // a kernel without pid namespaces
			link, err := os.Readlink("/proc/self")
			l.proc = err == nil && link == strconv.Itoa(l.self.PID)
		}
	}
	l.self.PIDNS = inode("/proc/self/ns/pid")
	l.self.TimeNS = inode("/proc/self/ns/time")
	l.self.InitialNS = l.proc && l.self.PIDNS == initialPIDNS
	if st, err := readStat("/proc/self/stat"); err == nil {
		l.self.StartTicks = st.start
	}
	clock, known := clockBoot()
	stat, err := statBoot()
	l.clockBoot = known && err == nil && clock == stat
	if b, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
		l.freezers = findFreezers(parseMounts(b))
	}
	return l
}

func (l *linux) Self() Self {
	self := l.self
	self.Host, _ = os.Hostname()
	if boot, ok := l.boot(); ok && self.StartTicks != 0 {
		self.StartUnix = uint64(boot) + self.StartTicks/ticksPerSecond
	}
	return self
}

func (l *linux) BootTime() time.Time {
	if boot, ok := l.boot(); ok {
		return time.Unix(boot, 0)
	}
	return time.Time{}
}

// boot is btime in seconds. /proc/stat counts every interrupt of every processor to tell it, so the clocks are asked
// where they were seen to say the same; where a container's /proc/stat is made up, AgentMux reads that one.
func (l *linux) boot() (int64, bool) {
	if l.clockBoot {
		if boot, ok := clockBoot(); ok {
			return boot, true
		}
	}
	boot, err := statBoot()
	return boot, err == nil
}

// clockBoot is wall clock less boot-time clock, which the kernel calls btime. It is not known when the two readings
// of the boot-time clock lie on both sides of a whole second. Package time is not asked: tests may fake it.
func clockBoot() (seconds int64, known bool) {
	var before, wall, after unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &before) != nil ||
		unix.ClockGettime(unix.CLOCK_REALTIME, &wall) != nil ||
		unix.ClockGettime(unix.CLOCK_BOOTTIME, &after) != nil {
		return 0, false
	}
	high, low := wall.Nano()-before.Nano(), wall.Nano()-after.Nano()
	return high / 1e9, low > 0 && high/1e9 == low/1e9
}

func statBoot() (int64, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, "btime "); ok {
			return strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, io.ErrUnexpectedEOF
}

func (l *linux) Exists(pid int) bool {
	return pid > 0 && pid <= maxPID && exists(pid)
}

func (l *linux) Look(pid int) (Look, error) {
	if !l.proc {
		return Look{}, errNoProc
	}
	for range 3 {
		st, err := readStat(procPath(pid, "stat"))
		if err != nil {
			return Look{}, err
		}
		look := Look{
			Process:   Process{PID: pid, Name: st.name},
			Parent:    st.parent,
			Start:     st.start,
			HasStart:  true,
			Thread:    isThread(pid),
			Condition: condition(st.state),
			Zombie:    strings.IndexByte("ZXx", st.state) >= 0,
		}
		if boot, ok := l.boot(); ok {
			look.Started = time.Unix(boot, 0).Add(time.Duration(st.start) * (time.Second / ticksPerSecond))
		}
		if look.Zombie && st.threads > 1 {
			look.LiveThreads, look.Condition = liveThreads(pid)
			// The threads were read by pid: they count only if the process still has it.
			if again, err := readStat(procPath(pid, "stat")); err != nil || again.start != st.start {
				continue
			}
		}
		return look, nil
	}
	return Look{}, ErrNoProcess
}

func condition(state byte) Condition {
	switch state {
	case 'T':
		return Stopped
	case 't':
		return Traced
	default:
		return Running
	}
}

// isThread says whether the number belongs to a thread that is not its process's main one. kill and /proc/<tid>
// answer for such a number; pidfd_open does not, and costs a tenth of reading the status.
func isThread(pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == nil {
		_ = unix.Close(fd)
		return false
	}
	b, err := os.ReadFile(procPath(pid, "status"))
	if err != nil {
		return false
	}
	tgid := parseStatus(b).tgid
	return tgid != 0 && tgid != pid
}

// liveThreads counts the threads of an exited main thread that still run, and how the first of them stands; -1 when
// they cannot be seen.
func liveThreads(pid int) (int, Condition) {
	dir := procPath(pid, "task")
	tids, err := listPIDs(dir)
	if err != nil {
		return -1, Running
	}
	live, first := 0, Running
	for _, tid := range tids {
		st, err := readStat(dir + "/" + strconv.Itoa(tid) + "/stat")
		switch {
		case errors.Is(err, ErrNoProcess):
		case err != nil:
			return -1, Running
		case strings.IndexByte("ZXx", st.state) < 0:
			if live == 0 {
				first = condition(st.state)
			}
			live++
		}
	}
	return live, first
}

func (l *linux) Namespaces(pid int) (pidNS, timeNS uint64) {
	return inode(procPath(pid, "ns/pid")), inode(procPath(pid, "ns/time"))
}

func (l *linux) Nested() (map[int][]int, string) {
	if !l.proc {
		return nil, whyNoProc
	}
	pids, err := listPIDs("/proc")
	if err != nil {
		return nil, "/proc cannot be listed"
	}
	byInner, missing := make(map[int][]int), ""
	var buf []byte
	for _, pid := range pids {
		// Quick where it is allowed: who lives in our own namespace is not nested.
		if l.self.PIDNS != 0 && inode(procPath(pid, "ns/pid")) == l.self.PIDNS {
			continue
		}
		buf, err = readWhole(procPath(pid, "status"), buf)
		if errors.Is(err, ErrNoProcess) {
			continue
		}
		nspid := parseStatus(buf).nspid
		switch {
		case errors.Is(err, os.ErrPermission):
			missing = whyHidden
		case err != nil || len(nspid) == 0:
			missing = "the pids of a process in its own namespace cannot be read"
		case len(nspid) > 1:
			inner := nspid[len(nspid)-1]
			byInner[inner] = append(byInner[inner], pid)
		}
	}
	// Asked last: a /proc that was re-mounted during the search hid some of it.
	if missing == "" && hidesOthers() {
		missing = whyHidden
	}
	return byInner, missing
}

func (l *linux) Locks() ([]FileLock, error) {
	if !l.proc {
		return nil, errNoProc
	}
	b, err := os.ReadFile("/proc/locks")
	return parseLocks(b), err
}

func (l *linux) OpenFiles() (files []OpenFile, denied []int, complete bool) {
	if !l.proc {
		return nil, nil, false
	}
	pids, err := listPIDs("/proc")
	if err != nil {
		return nil, nil, false
	}
	var buf []byte
	for _, pid := range pids {
		dir := procPath(pid, "fdinfo")
		fds, err := listPIDs(dir)
		if errors.Is(err, ErrNoProcess) {
			continue
		}
		if err != nil {
			denied = append(denied, pid)
			continue
		}
		for _, fd := range fds {
			if buf, err = readWhole(dir+"/"+strconv.Itoa(fd), buf); err != nil {
				if !errors.Is(err, ErrNoProcess) && !slices.Contains(denied, pid) {
					denied = append(denied, pid)
				}
				continue
			}
			info := parseFDInfo(buf)
			f := OpenFile{PID: pid, FD: fd, Ino: info.ino, Write: info.write, Flock: info.flock}
			if !info.hasIno {
				st, err := statOpen(f)
				if err != nil {
					continue
				}
				f.Ino = st.Ino
			}
			files = append(files, f)
		}
	}
	return files, denied, l.self.InitialNS && !hidesOthers()
}

func (l *linux) SameFile(f OpenFile, dev, ino uint64) bool {
	st, err := statOpen(f)
	return err == nil && st.Ino == ino && unix.Mkdev(st.Dev_major, st.Dev_minor) == dev
}

// statOpen asks what an open file is, without asking a server that may not answer.
func statOpen(f OpenFile) (unix.Statx_t, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, procPath(f.PID, "fd/"+strconv.Itoa(f.FD)), unix.AT_STATX_DONT_SYNC,
		unix.STATX_TYPE|unix.STATX_INO, &st)
	return st, err
}

func (l *linux) Describe(pid int) (Details, error) {
	look, err := l.Look(pid)
	if err != nil {
		return Details{}, err
	}
	d, err := describe(pid)
	if err != nil {
		return Details{}, err
	}
	d.Process = look.Process // gopsutil's start time moves by a second between calls
	for i, p := range d.Parents {
		if look, err := l.Look(p.PID); err == nil {
			d.Parents[i] = look.Process
		}
	}
	return d, nil
}

func procPath(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

func readStat(path string) (statLine, error) {
	var buf [2048]byte
	b, err := readFile(path, buf[:])
	if err != nil {
		return statLine{}, err
	}
	st, ok := parseStat(b)
	if !ok {
		return statLine{}, fmt.Errorf("%s: %w", path, io.ErrUnexpectedEOF)
	}
	return st, nil
}

// readWhole reads a file of any size of /proc into buf or a larger one.
func readWhole(path string, buf []byte) ([]byte, error) {
	buf = buf[:cap(buf)]
	for {
		b, err := readFile(path, buf)
		if err != nil || len(b) < len(buf) {
			return b, err
		}
		buf = make([]byte, max(4096, 2*len(buf)))
	}
}

// readFile reads the start of a file of /proc with a single read, which such a file answers with all it has and
// from one moment. Whatever means that the process has gone is ErrNoProcess.
func readFile(path string, buf []byte) ([]byte, error) {
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, procError("open", path, err)
	}
	n, err := retry(func() (int, error) { return unix.Read(fd, buf) })
	_ = unix.Close(fd)
	if err != nil {
		return nil, procError("read", path, err)
	}
	return buf[:n], nil
}

func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

func procError(op, path string, err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return ErrNoProcess
	}
	return &os.PathError{Op: op, Path: path, Err: err}
}

// listPIDs returns the numbers among a directory's names. Processes that live through the call are all in it.
func listPIDs(dir string) ([]int, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, procError("open", dir, err)
	}
	defer func() { _ = d.Close() }()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, procError("read", dir, err)
	}
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// inode is that of a namespace, which the link's name tells; 0 when it cannot be read.
func inode(link string) uint64 {
	var buf [64]byte
	n, err := unix.Readlink(link, buf[:]) // pid:[4026531836]
	if err != nil || n == len(buf) {
		return 0
	}
	_, digits, _ := bytes.Cut(buf[:n], []byte("["))
	ino, _ := strconv.ParseUint(string(bytes.TrimSuffix(digits, []byte("]"))), 10, 64)
	return ino
}

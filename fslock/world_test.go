//go:build linux

package fslock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/fslock/proc"
	"holdfast/fslock/proc/proctest"
	"holdfast/fslock/record"
)

// A world is some processes, originals and ours, on one lock in a real directory. Each runs in goroutines that stop
// before every step, and one at a time is let go on, so that whoever drives the world decides over the order of all
// steps, over who is killed or stopped where, and over time, which is that of a bubble.
type world struct {
	dir, path string
	rules     rules
	ctx       context.Context //nolint:containedctx // it ends what still waits when the world ends
	bootAt    time.Time

	said   sync.Mutex
	mu     sync.Mutex
	hosts  map[string]*host
	procs  []*process
	parked []*parked
	free   bool // nobody stops at a step
	over   bool
	trace  []string
	bad    string
	stamps map[string]os.FileInfo
	woke   chan struct{} // somebody has come to a step
	pids   int
	done   sync.WaitGroup
}

// rules say what a schedule may hold. Whatever is left out here is a limit that the package tells.
type rules struct {
	notLocal bool // the file system is not of the allow-list: the guard is a file

	// fatal: that a living holder's lock goes, is wrong, whatever it is told. So it is on one machine.
	fatal bool
	// whole are steps that an original does at once with the one before.
	whole []string
	// late: a holder, or one of ours between link and return, that was silent for over 70 s and whose lock others may
	// take goes on only while nobody else is at work on the lock; an original that was silent in a heartbeat or a release dies of it.
	late bool
	// coarse: ours do not stop where they only look.
	coarse bool
}

// The steps of originals that remove what they have compared, whatever it has become since. The malformed ones are limits
// that the package tells.
const (
	gapMalformedLock  = "remove the malformed lock"
	gapMalformedToken = "remove the malformed token"
	gapDeadToken      = "remove the token"
	gapLock           = "remove the lock"
)

// host is one machine.
type host struct {
	name, boot string
	ns         uint64
	worlds     []*proctest.World
}

// process is an original or one of ours.
type process struct {
	w      *world
	name   string
	pid    int
	host   *host
	locker *Locker // nil: an original
	aft    *original

	dead, stopped bool
	busy          atomic.Bool // in the midst of taking the lock
	linked        bool        // one of ours that has published, and has not returned yet
	robbed        bool        // one of ours whose token an original has removed while it is busy
	since         time.Time   // since when the token of an original lies there
	half          bool        // and that is unfinished

	holding bool
	epoch   string
	beat    time.Time // last heartbeat that could be read
	lost    func() bool
}

// parked is a goroutine that stops before a step.
type parked struct {
	p      *process
	at     string
	resume chan order
}

// order is what a process that can choose is told to do.
type order int

const (
	orderGo order = iota
	orderTry
	orderWait
	orderClear
	orderVerify
	orderRelease
)

const (
	idle    = "idle"
	holding = "holding"
)

func newWorld(dir string, ctx context.Context, r rules) *world {
	w := &world{
		dir: dir, path: filepath.Join(dir, "cache.lock"), rules: r, ctx: ctx, bootAt: time.Now().Add(-time.Hour),
		hosts: make(map[string]*host), stamps: make(map[string]os.FileInfo), pids: 100,
		woke: make(chan struct{}, 1),
	}
	for i, name := range []string{"here", "there"} {
		w.hosts[name] = &host{name: name, boot: "boot-" + name, ns: uint64(10 + i)}
	}
	return w
}

// synchronise lets a bubble's clock begin where the real one stands, so that times of files mean something there.
func synchronise(real time.Time) { time.Sleep(time.Until(real)) }

func (w *world) log(format string, args ...any) {
	w.said.Lock()
	defer w.said.Unlock()
	w.trace = append(w.trace, fmt.Sprintf("%8.3f ", time.Since(w.bootAt).Seconds()-3600)+fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) {
	w.log("!! "+format, args...)
	w.said.Lock()
	defer w.said.Unlock()
	if w.bad == "" {
		w.bad = fmt.Sprintf(format, args...)
	}
}

// spawn starts a process of a kind: "ours", "old" or "new".
func (w *world) spawn(kind, hostName string) *process {
	w.pids++
	h := w.hosts[hostName]
	p := &process{w: w, pid: w.pids, host: h, name: fmt.Sprintf("%s-%d@%s", kind, w.pids, hostName)}
	w.procs = append(w.procs, p)
	if kind == "ours" {
		p.locker = w.locker(h, p.pid, p.stop)
		p.locker.sinceBoot = func() time.Duration {
			if p.linked {
				p.pause("clock") // it has none of its own steps between what it looks at before it returns
			}
			return time.Since(w.bootAt)
		}
	} else {
		p.aft = &original{
			pid: p.pid, host: h.name, start: uint64(p.pid), boot: h.boot, inPlace: kind == "new", alive: w.alive, step: p.step,
			spawn: w.done.Go,
		}
	}
	w.publish()
	w.done.Go(func() {
		if p.locker != nil {
			p.runOurs()
		} else {
			p.runOriginal()
		}
	})
	synctest.Wait() // till it stands before its first step
	return p
}

// locker is one of ours as a process of its own.
func (w *world) locker(h *host, pid int, stop func(step, path string) error) *Locker {
	pw := proctest.NewWorld(proctest.Machine{
		Host: h.name, BootID: h.boot, BootAt: w.bootAt, PIDNS: h.ns, TimeNS: h.ns, Initial: true, NoPidfs: true, PID: pid,
	})
	h.worlds = append(h.worlds, pw)
	l := &Locker{
		Table: pw.Table(), sinceBoot: func() time.Duration { return time.Since(w.bootAt) }, unwatched: true,
		fault: stop,
		local: func(dir string) (string, bool) {
			if !w.rules.coarse {
				_ = stop("look", dir)
			}
			return "made up", !w.rules.notLocal
		},
		link: func(old, name string) error {
			_ = stop("link", name)
			return os.Link(old, name)
		},
	}
	return l
}

// publish tells every machine's processes who runs on it.
func (w *world) publish() {
	for _, h := range w.hosts {
		var list []proctest.Proc
		for _, p := range w.procs {
			if p.host == h && !p.dead {
				q := proctest.Proc{PID: p.pid, Start: uint64(p.pid), Name: p.name}
				if p.stopped {
					q.Condition = proc.Stopped
				}
				list = append(list, q)
			}
		}
		for _, pw := range h.worlds {
			pw.Change(func(m *proctest.Machine) { m.Procs = list })
		}
	}
}

// alive is what an original sees of a recorded process of its own host.
func (w *world) alive(r *record.Lock) bool {
	return slices.ContainsFunc(w.procs, func(p *process) bool {
		return !p.dead && uint32(p.pid) == r.PID && (r.ProcessStartTime == nil || *r.ProcessStartTime == uint64(p.pid)) &&
			(r.BootID == nil || *r.BootID == p.host.boot)
	})
}

// pause stops the goroutine until it is told to go on.
func (p *process) pause(at string) order {
	w := p.w
	w.mu.Lock()
	if w.over || w.free && !p.dead && !p.stopped {
		w.mu.Unlock()
		return orderGo
	}
	if p.dead && (at == "guarded" || at == "releasing") {
		w.dropGuards() // the kernel would not have given it to the dead
	}
	k := &parked{p: p, at: at, resume: make(chan order)}
	w.parked = append(w.parked, k)
	w.mu.Unlock()
	select {
	case w.woke <- struct{}{}:
	default:
	}
	return <-k.resume
}

func (w *world) isOver() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over
}

// silent reports whether others may have given up the holder.
func (p *process) silent() bool {
	return (p.holding || p.linked) && time.Since(p.beat) > staleAfter
}

func (p *process) runOriginal() {
	for {
		var h *aftHold
		var err error
		p.busy.Store(false)
		switch o := p.pause(idle); {
		case p.w.over:
			return
		case o == orderClear:
			_, err = p.aft.clearToken(p.w.token(), false)
		default:
			p.busy.Store(true)
			deadline := time.Now()
			if o == orderWait {
				deadline = deadline.Add(time.Second)
			}
			h, err = p.aft.acquire(p.w.path, deadline)
		}
		if err != nil {
			p.w.fail("%s: %v", p.name, err)
		}
		if h == nil {
			continue
		}
		p.acquired(h.rec.WriterEpoch, func() bool { return isClosed(h.lost) })
		for {
			o := p.pause(holding)
			if p.w.over {
				return
			}
			if o == orderRelease {
				break
			}
			if !p.verified(h.verify()) {
				break
			}
		}
		p.holding = false
		if err := h.release(); err != nil {
			p.w.fail("%s: %v", p.name, err)
		}
	}
}

func (p *process) runOurs() {
	for {
		var lock *Lock
		var err error
		p.busy.Store(false)
		p.linked, p.robbed = false, false
		switch o := p.pause(idle); {
		case p.w.over:
			return
		case o == orderWait:
			p.busy.Store(true)
			ctx, cancel := context.WithTimeout(p.w.ctx, time.Second)
			lock, err = p.locker.Acquire(ctx, p.w.path)
			cancel()
		default:
			p.busy.Store(true)
			lock, err = p.locker.TryAcquire(p.w.path)
		}
		if p.w.over && lock != nil {
			_ = lock.Release()
			return
		}
		switch {
		case err == nil:
		case errors.Is(err, ErrHeld), errors.Is(err, ErrBlocked), errors.Is(err, ErrChanged), errors.Is(err, ErrStale):
			p.w.log("   %s: %v", p.name, err)
			continue
		default:
			p.w.fail("%s: %v", p.name, err)
			continue
		}
		p.acquired(lock.WriterEpoch(), func() bool { return isClosed(lock.Lost()) })
		for o := p.pause(holding); o != orderRelease && !p.w.over; o = p.pause(holding) {
			if !p.verified(lock.Verify() == nil) && isClosed(lock.Lost()) {
				break
			}
		}
		p.holding = false
		if err := lock.Release(); err != nil && !p.w.over {
			p.w.fail("%s: %v", p.name, err)
		}
	}
}

// acquired begins a hold: nobody else may be in one.
func (p *process) acquired(epoch string, lost func() bool) {
	w := p.w
	if p.dead {
		p.pause("return") // it was killed while it slept
	}
	p.busy.Store(false)
	p.linked, p.robbed = false, false
	w.log("   %s has it", p.name)
	p.clash("has taken the lock")
	p.holding, p.epoch, p.beat, p.lost = true, epoch, time.Now(), lost
	w.watch()
}

// clash tells of another one that holds the lock by rights.
func (p *process) clash(does string) {
	for _, q := range p.w.procs {
		if q == p || !q.holding || q.dead || q.lost() {
			continue
		}
		if !p.w.rules.fatal && q.silent() {
			continue
		}
		p.w.fail("%s %s, which %s holds", p.name, does, q.name)
	}
}

func (p *process) verified(ok bool) bool {
	if ok {
		p.clash("has verified the lock")
	} else if !p.dead && p.w.rules.fatal {
		p.w.fail("%s has lost its lock", p.name)
	}
	return ok
}

func (w *world) token() string { return filepath.Join(w.dir, record.TokenName("cache.lock")) }

// watch takes note of who has beaten.
func (w *world) watch() {
	rec := readRecord(w.path)
	if rec == nil {
		return
	}
	for _, p := range w.procs {
		if p.holding && p.epoch == rec.WriterEpoch {
			p.beat = time.UnixMilli(int64(rec.HeartbeatAtMS))
		}
	}
}

// settle waits until everybody stops or sleeps, and gives what was written meanwhile the time of the bubble.
func (w *world) settle() {
	synctest.Wait()
	w.watch()
	entries, _ := os.ReadDir(w.dir)
	now := time.Now()
	known := make(map[string]os.FileInfo, len(entries))
	for _, e := range entries {
		path := filepath.Join(w.dir, e.Name())
		info, err := os.Lstat(path)
		if err != nil {
			continue
		}
		old := w.stamps[e.Name()]
		if old == nil || !os.SameFile(old, info) || !old.ModTime().Equal(info.ModTime()) {
			_ = os.Chtimes(path, now, now)
			info, _ = os.Lstat(path)
		}
		known[e.Name()] = info
	}
	w.stamps = known
	for _, p := range w.procs {
		if p.holding && !p.dead && p.lost() && w.rules.fatal {
			w.fail("%s is told that its lock is lost", p.name)
		}
	}
}

// waiting are the goroutines that stop before a step.
func (w *world) waiting() []*parked {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.parked)
}

// runnable are the goroutines that may take their next step, in an order that does not depend on chance.
func (w *world) runnable() []*parked {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []*parked
	for _, k := range w.parked {
		if k.p.dead || k.p.stopped || w.mustWait(k) {
			continue
		}
		list = append(list, k)
	}
	slices.SortStableFunc(list, func(a, b *parked) int {
		return cmp.Or(cmp.Compare(a.p.pid, b.p.pid), strings.Compare(a.at, b.at))
	})
	return list
}

func (w *world) mustWait(k *parked) bool {
	for _, other := range w.parked {
		// Its heartbeat holds what Verify waits for.
		if other != k && other.p == k.p && other.at == "beating" {
			return true
		}
	}
	if !w.rules.late || !k.p.silent() {
		return false
	}
	return slices.ContainsFunc(w.procs, func(q *process) bool { return q != k.p && !q.dead && q.busy.Load() })
}

// run lets one goroutine take one step.
func (w *world) run(k *parked, o order) {
	w.mu.Lock()
	w.parked = slices.DeleteFunc(w.parked, func(other *parked) bool { return other == k })
	w.mu.Unlock()
	what := ""
	switch o {
	case orderTry:
		what = ": try"
	case orderWait:
		what = ": wait"
	case orderClear:
		what = ": clear the token"
	case orderVerify:
		what = ": verify"
	case orderRelease:
		what = ": release"
	default:
	}
	w.log("%s: %s%s", k.p.name, k.at, what)
	k.resume <- o
	w.settle()
}

// pass lets time go by while everybody who stops stands still.
func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	robbed := slices.ContainsFunc(w.procs, func(p *process) bool { return p.robbed && !p.dead })
	for _, p := range w.procs {
		// An original's reclaimer that stalls over 60 s.
		if p.aft != nil && !p.dead && !p.since.IsZero() && (p.half || robbed) {
			d = min(d, 50*time.Second-time.Since(p.since))
		}
	}
	w.mu.Unlock()
	if d <= 0 {
		return
	}
	w.log("-- %v pass", d)
	time.Sleep(d)
	w.settle()
	if !w.rules.late {
		return
	}
	for _, k := range w.waiting() {
		inBeat := strings.HasPrefix(k.at, "beat: ") && k.at != "beat: compare"
		if k.p.aft != nil && !k.p.dead && time.Since(k.p.beat) > staleAfter && (inBeat || k.at == "remove the own lock") {
			w.kill(k.p)
		}
	}
}

// live lets time go by while everybody works: heartbeats beat, and who is idle tries: ours every
// second, so that they watch a silent holder, originals more rarely.
func (w *world) live(d time.Duration) {
	w.log("-- %v of work", d)
	end := time.Now().Add(d)
	for round := 0; time.Now().Before(end) && w.bad == ""; {
		for _, k := range w.runnable() {
			if k.at != holding && k.at != idle {
				w.run(k, orderGo)
			}
		}
		if slices.ContainsFunc(w.runnable(), func(k *parked) bool { return k.at != holding && k.at != idle }) {
			continue
		}
		for _, k := range w.runnable() {
			if k.at == idle && (k.p.locker != nil || round%5 == 0) {
				w.run(k, orderTry)
			}
		}
		round++
		select {
		case <-w.woke:
		default:
		}
		select {
		case <-w.woke:
		case <-time.After(time.Second):
		}
		w.settle()
	}
}

func (w *world) kill(p *process) {
	w.log("-- %s is killed", p.name)
	w.mu.Lock()
	defer w.mu.Unlock()
	p.dead, p.holding = true, false
	w.publish()
	if p.locker != nil && p.busy.Load() || slices.ContainsFunc(w.parked, func(k *parked) bool { return k.p == p && k.at == "releasing" }) {
		w.dropGuards()
	}
}

// dropGuards lets go of the guard for a process that was killed in it. There is one at most.
func (w *world) dropGuards() {
	places := map[uint64]bool{}
	for _, name := range []string{".", guardName("cache.lock")} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(w.dir, name), &st); err == nil {
			places[st.Ino] = true
		}
	}
	fds, _ := os.ReadDir("/proc/self/fd")
	for _, e := range fds {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err == nil && places[st.Ino] {
			_ = unix.Flock(fd, unix.LOCK_UN)
		}
	}
}

// holders are the processes that could be killed or stopped.
func (w *world) living() []*process {
	return slices.DeleteFunc(slices.Clone(w.procs), func(p *process) bool { return p.dead })
}

// end lets everybody leave.
func (w *world) end() {
	w.mu.Lock()
	w.over = true
	for _, k := range w.parked {
		close(k.resume)
	}
	w.parked = nil
	w.mu.Unlock()
	w.done.Wait()
}

package sweep

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/fslock"
	"holdfast/fslock/audit"
	"holdfast/fslock/proc"
	"holdfast/fslock/record"
)

// childEnv makes the test binary a process that does an order: it plans, says so, and runs when it is told to.
const childEnv = "SWEEP_TEST_CHILD"

type order struct {
	Root, Audit string
	Temps       bool
}

type answer struct {
	Removed, Kept, Errors []string
	Err                   string
}

func child(line string) {
	var o order
	if err := json.Unmarshal([]byte(line), &o); err != nil {
		panic(err)
	}
	s := &Sweeper{Root: o.Root, Audit: &audit.Log{Path: o.Audit}, Temps: o.Temps}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	plan, err := s.Plan(ctx)
	fmt.Println("planned")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	report, rerr := s.Run(ctx, plan)
	a := answer{Removed: paths(report.Removed), Kept: paths(report.Kept)}
	for i := range report.Errors {
		a.Errors = append(a.Errors, report.Errors[i].Error())
	}
	if err = errors.Join(err, rerr); err != nil {
		a.Err = err.Error()
	}
	if err := json.NewEncoder(os.Stdout).Encode(a); err != nil {
		panic(err)
	}
}

// sweeping is a child that has planned.
type sweeping struct {
	t   *testing.T
	in  io.Closer
	out *bufio.Reader
}

func startSweep(t *testing.T, cmd *exec.Cmd, o order) *sweeping {
	t.Helper()
	line, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), childEnv+"="+string(line))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	s := &sweeping{t, in, bufio.NewReader(out)}
	if line, err := s.out.ReadString('\n'); err != nil {
		t.Fatalf("the child says %q: %v", line, err)
	}
	return s
}

// run lets it run its plan.
func (s *sweeping) run() answer {
	s.t.Helper()
	var a answer
	if err := s.in.Close(); err != nil {
		s.t.Fatal(err)
	}
	if err := json.NewDecoder(s.out).Decode(&a); err != nil {
		s.t.Fatal(err)
	}
	return a
}

// ours is a record of a process of this machine that runs, or does not any more.
func ours(t *testing.T, alive bool) []byte {
	t.Helper()
	self := proc.Local().Self()
	r := record.Lock{
		PID: uint32(self.PID), Hostname: self.Host, ProcessStartTime: &self.StartTicks, BootID: &self.BootID,
		CreatedAtMS: uint64(time.Now().UnixMilli()), HeartbeatAtMS: uint64(time.Now().UnixMilli()), WriterEpoch: "w",
	}
	r.Ours.PIDNS, r.Ours.TimeNS = self.PIDNS, self.TimeNS
	if !alive {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^$")
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		r.PID, r.ProcessStartTime = uint32(cmd.Process.Pid), new(uint64(1))
	}
	return r.Encode()
}

func TestTwoSweepingProcessesRemoveEachTokenOnce(t *testing.T) {
	const tokens = 100
	root := t.TempDir()
	dead := ours(t, false)
	for i := range tokens {
		putOld(t, filepath.Join(root, fmt.Sprintf("index/%d/.%d.lock.reclaim", i%3, i)), dead, time.Minute)
	}
	putOld(t, filepath.Join(root, "index/0/.mine.lock.reclaim"), ours(t, true), time.Minute)
	o := order{Root: root, Audit: logIn(t).Path}
	var children [3]*sweeping
	for i := range children {
		children[i] = startSweep(t, exec.CommandContext(t.Context(), "/proc/self/exe"), o)
	}
	var answers [len(children)]answer
	var wg sync.WaitGroup
	for i, c := range children {
		wg.Go(func() { answers[i] = c.run() })
	}
	wg.Wait()
	var removed []string
	for _, a := range answers {
		if len(a.Errors) != 0 || a.Err != "" || len(a.Removed)+len(a.Kept) != tokens {
			t.Errorf("%d removed, %d kept, errors %q, %s", len(a.Removed), len(a.Kept), a.Errors, a.Err)
		}
		removed = append(removed, a.Removed...)
	}
	slices.Sort(removed)
	if n := len(slices.Compact(slices.Clone(removed))); len(removed) != tokens || n != tokens {
		t.Errorf("%d removals of %d tokens", len(removed), n)
	}
	if n := len(entries(t, &audit.Log{Path: o.Audit})); n != tokens {
		t.Errorf("%d entries in the audit log", n)
	}
	if left := files(t, root); len(left) != 1 {
		t.Errorf("left: %q", slices.Sorted(maps.Keys(left)))
	}
}

// nobody is the test binary as an ordinary user, to whom root, with all in it, belongs.
func nobody(t *testing.T, root string) *exec.Cmd {
	t.Helper()
	dir := filepath.Dir(root)
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if os.Getuid() != 0 {
		return exec.CommandContext(t.Context(), "/proc/self/exe")
	}
	const uid = 65534
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, uid)
	})
	if err != nil {
		t.Fatal(err)
	}
	// The test binary lies where an ordinary user may not go.
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "child")
	if err := os.WriteFile(copied, data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(copied, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), copied)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

func TestLockedRoomAmongTen(t *testing.T) {
	for _, tc := range []struct {
		what string
		mode fs.FileMode
	}{
		{"it may not be entered", 0},
		{"it may not be listed", 0o300},
		{"it may not be changed", 0o500},
	} {
		t.Run(tc.what, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "storage")
			dead := ours(t, false)
			for i := range 10 {
				putOld(t, filepath.Join(root, fmt.Sprintf("index/%d/.cache.lock.reclaim", i)), dead, time.Minute)
			}
			put(t, filepath.Join(root, "log"), true, "")
			room := filepath.Join(root, "index/4")
			cmd := nobody(t, root)
			if err := os.Chmod(room, tc.mode); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Chmod(room, 0o700) })
			a := startSweep(t, cmd, order{Root: root, Audit: filepath.Join(root, "log", "audit.jsonl"), Temps: true}).run()
			if len(a.Removed) != 9 || len(a.Kept) != 0 || a.Err != "" || len(a.Errors) != 1 ||
				!strings.Contains(a.Errors[0], room) || !strings.Contains(a.Errors[0], syscall.EACCES.Error()) ||
				strings.Count(a.Errors[0], room) > 1 {
				t.Errorf("%+v", a)
			}
			if err := os.Chmod(room, 0o700); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(filepath.Join(room, ".cache.lock.reclaim")); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTokenThatIsNoFileIsLeft(t *testing.T) {
	root := tree(t, "index/", "index/.dir.lock.reclaim/", "index/.dir.lock.tmp.999.1.0/", "elsewhere")
	at := func(name string) string { return filepath.Join(root, "index", name) }
	putOld(t, at(".real.lock.reclaim"), recordOf(999, "here"), week)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, suffix := range []string{".reclaim", ".tmp.999.1.0"} {
		symlink(t, at("nowhere"), at(".dangling.lock"+suffix))
		symlink(t, at(".real.lock.reclaim"), at(".link.lock"+suffix))
		must(unix.Mkfifo(at(".fifo.lock"+suffix), 0o600))
		must(unix.Mknod(at(".socket.lock"+suffix), unix.S_IFSOCK|0o600, 0))
		put(t, at(".sparse.lock"+suffix), false, "")
		must(os.Truncate(at(".sparse.lock"+suffix), 1<<30))
		old := time.Now().Add(-week)
		for _, name := range []string{".dir.lock", ".fifo.lock", ".socket.lock", ".sparse.lock"} {
			must(os.Chtimes(at(name+suffix), old, old))
		}
	}
	s := &Sweeper{Root: root, Locker: &fslock.Locker{Table: machine()}, Temps: true, Audit: logIn(t)}
	before := state(t, root)
	plan := planned(t, s, 1)
	if len(plan.Steps) != 13 {
		t.Errorf("%d steps", len(plan.Steps))
	}
	report, err := s.Run(t.Context(), plan)
	if err != nil || !slices.Equal(paths(report.Removed), []string{at(".real.lock.reclaim")}) {
		t.Fatalf("%+v, %v", report, err)
	}
	after := state(t, root)
	for _, changed := range []string{at(".real.lock.reclaim"), filepath.Join(root, "index")} {
		delete(before, changed)
		delete(after, changed)
	}
	if !maps.Equal(before, after) {
		t.Errorf("was\n%q\nis\n%q", before, after)
	}

	// One that took the place of what was planned is not touched either.
	putOld(t, at(".real.lock.reclaim"), recordOf(999, "here"), week)
	putOld(t, at(".real.lock.tmp.999.1.0"), recordOf(999, "here"), week)
	plan = planned(t, s, 2)
	for _, name := range []string{".real.lock.reclaim", ".real.lock.tmp.999.1.0"} {
		must(os.Remove(at(name)))
		must(unix.Mkfifo(at(name), 0o600))
	}
	start := time.Now()
	report, err = s.Run(t.Context(), plan)
	if err != nil || len(report.Removed)+len(report.Errors) != 0 || len(report.Kept) != 2 || time.Since(start) > 20*time.Second {
		t.Errorf("after %v: %+v, %v", time.Since(start), report, err)
	}
}

// stick makes a directory with that many dead tokens, whose guard somebody has and does not give back.
func stick(t *testing.T, dir string, tokens int) {
	t.Helper()
	for i := range tokens {
		putOld(t, filepath.Join(dir, fmt.Sprintf(".%d.lock.reclaim", i)), recordOf(999, "here"), week)
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if !(&Sweeper{}).isLocal(dir) {
		skip(t, "the guard is no directory on this file system")
	}
}

func TestStuckGuardDelaysItsDirectoryOnceAndNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		stick(t, filepath.Join(root, "index/a"), 3)
		free := filepath.Join(root, "index/b/.1.lock.reclaim")
		putOld(t, free, recordOf(999, "here"), week)
		s := &Sweeper{Root: root, Locker: &fslock.Locker{Table: machine()}, Audit: logIn(t)}
		plan := planned(t, s, 4)
		report, err := s.Run(t.Context(), plan)
		if err != nil || len(report.Kept) != 0 || len(report.Errors) != 3 || !slices.Equal(paths(report.Removed), []string{free}) {
			t.Fatalf("%+v, %v", report, err)
		}
		for i := range report.Errors {
			if e := &report.Errors[i]; !errors.Is(e, fslock.ErrBlocked) || !errors.Is(e.Err, report.Errors[0].Err) || e.Path != plan.Steps[i].Path {
				t.Errorf("each waits anew: %v", e)
			}
		}

		// A context that ends in the wait ends the run.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		report, err = s.Run(ctx, plan)
		if !errors.Is(err, context.DeadlineExceeded) || len(report.Removed)+len(report.Kept)+len(report.Errors) != 0 {
			t.Errorf("%+v, %v", report, err)
		}
	})
}

func TestRunTakesAMinuteAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stuck = 30
		root := t.TempDir()
		for i := range stuck {
			stick(t, filepath.Join(root, fmt.Sprintf("index/%02d", i)), 1)
		}
		s := &Sweeper{Root: root, Locker: &fslock.Locker{Table: machine()}, Audit: logIn(t)}
		plan := planned(t, s, stuck)
		start := time.Now()
		report, err := s.Run(t.Context(), plan)
		if d := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || d > maxTime+time.Second || len(report.Removed) != 0 ||
			len(report.Errors) == 0 || len(report.Errors) == stuck {
			t.Errorf("%d errors after %v, %v", len(report.Errors), d, err)
		}
	})
}

// Contenders take dead locks with dead tokens over, hold them and give them up, while sweepers remove whatever they may.
func TestSweepersBesideContendersTakeNothingFromThem(t *testing.T) {
	const locks, contenders, rounds = 3, 2, 8
	root := tree(t, "index/")
	dead := ours(t, false)
	log := logIn(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	// What is planted appears whole and under no other name before: a sweeper could take its temp for litter.
	outside := t.TempDir()
	plant := func(name string) {
		from := filepath.Join(outside, name)
		err := os.WriteFile(from, dead, 0o600)
		if err == nil {
			err = os.Link(from, filepath.Join(root, "index", name))
		}
		if err = errors.Join(err, os.Remove(from)); err != nil && !errors.Is(err, fs.ErrExist) {
			t.Error(err)
		}
	}
	var sweeps atomic.Int64
	done := make(chan struct{})
	var sweepers, holders sync.WaitGroup
	for range 2 {
		sweepers.Go(func() {
			s := &Sweeper{Root: root, Audit: log, Temps: true}
			for ended := false; !ended; {
				select {
				case <-done:
					ended = true // once more: what was planted last is there now
				default:
				}
				plan, err := s.Plan(ctx)
				report, rerr := s.Run(ctx, plan)
				if err = errors.Join(err, rerr); err != nil || len(report.Errors) != 0 {
					t.Errorf("a sweep failed: %v, %v", err, report.Errors)
					return
				}
				sweeps.Add(int64(len(report.Removed)))
			}
		})
	}
	for i := range locks {
		path := filepath.Join(root, "index", fmt.Sprintf("%d.lock", i))
		token, temp := record.TokenName(filepath.Base(path)), record.TempName(filepath.Base(path))
		holders.Go(func() {
			for range rounds {
				// What a crash in a take-over leaves.
				for _, name := range []string{temp, token, filepath.Base(path)} {
					plant(name)
				}
				var inside atomic.Int64
				var round sync.WaitGroup
				for range contenders {
					round.Go(func() {
						l := &fslock.Locker{}
						lock, err := l.Acquire(ctx, path)
						if err != nil {
							t.Error(err)
							return
						}
						if n := inside.Add(1); n != 1 {
							t.Errorf("%d hold the lock", n)
						}
						if err := lock.Verify(); err != nil {
							t.Error(err)
						}
						inside.Add(-1)
						if err := lock.Release(); err != nil {
							t.Error(err)
						}
					})
				}
				round.Wait()
			}
		})
	}
	holders.Wait()
	close(done)
	sweepers.Wait()
	if left := files(t, root); len(left) != 0 {
		t.Errorf("left: %q", slices.Sorted(maps.Keys(left)))
	}
	told := entries(t, log)
	for _, e := range told {
		if !bytes.Equal(e.Before, dead) {
			t.Errorf("swept: %s with %s", e.Path, e.Before)
		}
	}
	if n := int(sweeps.Load()); n == 0 || n != len(told) {
		t.Errorf("%d removals, %d entries in the audit log", n, len(told))
	}
}

func skip(t *testing.T, why ...any) {
	t.Helper()
	if os.Getenv("HOLDFAST_STRICT") == "1" {
		t.Fatal(why...)
	}
	t.Skip(why...)
}

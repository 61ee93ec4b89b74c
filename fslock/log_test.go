package fslock

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/proc/proctest"
	"holdfast/fslock/record"
)

// keepingHandler keeps what is logged, a line each: the level, the message and the attributes that are asked for.
type keepingHandler struct {
	mu    sync.Mutex
	lines []logLine
	with  []slog.Attr
	all   *keepingHandler // whose lines it adds to; nil: its own
}

type logLine struct {
	level slog.Level
	text  string
	attrs map[string]slog.Value
}

func (h *keepingHandler) logger() *slog.Logger { return slog.New(h) }

func (h *keepingHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *keepingHandler) WithGroup(string) slog.Handler { panic("nobody groups") }

func (h *keepingHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &keepingHandler{with: slices.Concat(h.with, attrs), all: h.root()}
}

func (h *keepingHandler) root() *keepingHandler {
	if h.all != nil {
		return h.all
	}
	return h
}

func (h *keepingHandler) Handle(_ context.Context, r slog.Record) error {
	line := logLine{level: r.Level, text: r.Message, attrs: make(map[string]slog.Value)}
	for _, a := range h.with {
		line.attrs[a.Key] = a.Value
	}
	r.Attrs(func(a slog.Attr) bool {
		line.attrs[a.Key] = a.Value
		return true
	})
	root := h.root()
	root.mu.Lock()
	defer root.mu.Unlock()
	root.lines = append(root.lines, line)
	return nil
}

// since returns what was logged since it was last asked, with the level in front.
func (h *keepingHandler) since(t *testing.T, path string) []string {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	var texts []string
	for _, line := range h.lines {
		if got := line.attrs["path"].String(); got != path {
			t.Errorf("%q tells the path %s", line.text, got)
		}
		texts = append(texts, fmt.Sprintf("%v %s", line.level, line.text))
	}
	h.lines = nil
	return texts
}

// last is the last line with that text.
func (h *keepingHandler) last(text string) map[string]slog.Value {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, line := range slices.Backward(h.lines) {
		if strings.Contains(line.text, text) {
			return line.attrs
		}
	}
	return nil
}

func wantLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	ok := len(got) == len(want)
	for i := 0; ok && i < len(want); i++ {
		ok = strings.HasPrefix(got[i], want[i])
	}
	if !ok {
		t.Errorf("%s: logged %q, want %q", what, got, want)
	}
}

func TestAcquiredAndReleasedAreTold(t *testing.T) {
	inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
		h := &keepingHandler{}
		l := timed(4242, c)
		l.Log = h.logger()
		lock := take(t, l, path)
		wantLines(t, "acquire", h.since(t, path), "DEBUG acquired lock")
		time.Sleep(time.Minute)
		wantLines(t, "beats", h.since(t, path))
		giveUp(t, lock)
		giveUp(t, lock)
		wantLines(t, "release", h.since(t, path), "DEBUG released lock")
	})
}

func TestFailingBeatsAreToldThriceAndTheirEnd(t *testing.T) {
	inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
		h := &keepingHandler{}
		l := timed(4242, c)
		l.Log = h.logger()
		var fail atomic.Bool
		l.fault = func(step, _ string) error {
			if step == "beating" && fail.Load() {
				return syscall.ENOSPC
			}
			return nil
		}
		beat := func() []string {
			time.Sleep(beatInterval)
			synctest.Wait()
			return h.since(t, path)
		}
		lock := take(t, l, path)
		h.since(t, path)
		for range 2 {
			fail.Store(true)
			wantLines(t, "the first", beat(), "WARN heartbeat failed")
			wantLines(t, "the second", beat(), "WARN heartbeat failed")
			wantLines(t, "the third", beat(), "ERROR heartbeat")
			for range 100 {
				wantLines(t, "one more", beat())
			}
			fail.Store(false)
			wantLines(t, "a good one", beat(), "INFO heartbeat recovered")
			wantLines(t, "one more", beat())
		}
		giveUp(t, lock)
	})
}

func TestLossIsToldOnce(t *testing.T) {
	inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
		h := &keepingHandler{}
		l := timed(4242, c)
		l.Log = h.logger()
		lock := take(t, l, path)
		h.since(t, path)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		wantLines(t, "loss", h.since(t, path), "ERROR lost lock")
		giveUp(t, lock)
		wantLines(t, "release", h.since(t, path))
	})
}

func TestFailedReleaseIsTold(t *testing.T) {
	inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
		h := &keepingHandler{}
		l := timed(4242, c)
		l.Log = h.logger()
		fail := true
		l.fault = func(step, _ string) error {
			if step == "releasing" && fail {
				return syscall.EIO
			}
			return nil
		}
		lock := take(t, l, path)
		h.since(t, path)
		wantErrors(t, "release", lock.Release(), syscall.EIO)
		wantLines(t, "release", h.since(t, path), "WARN release failed")
		fail = false
		giveUp(t, lock)
	})
}

func TestOddHolderIsToldOnceAnAcquire(t *testing.T) {
	const lateLine, longLine = "WARN lock is held by a live process without heartbeat", "WARN lock is held for over 10 minutes"
	old := func(r *record.Lock) { r.CreatedAtMS = r.HeartbeatAtMS }
	long := func(r *record.Lock) { r.CreatedAtMS = ms(-11 * time.Minute) }
	for what, tc := range map[string]struct {
		beat      time.Duration
		mod       []func(*record.Lock)
		condition proc.Condition
		want      []string
	}{
		"a current one":       {beat: time.Second},
		"a late one":          {beat: time.Hour, mod: []func(*record.Lock){old}, want: []string{lateLine, longLine}},
		"a late one of late":  {beat: 30 * time.Second, want: []string{lateLine}},
		"a stopped one":       {beat: 30 * time.Second, condition: proc.Stopped, want: []string{lateLine}},
		"one just stopped":    {beat: 0, condition: proc.Stopped},
		"one that holds long": {beat: time.Second, mod: []func(*record.Lock){long}, want: []string{longLine}},
	} {
		t.Run(what, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
				h := &keepingHandler{}
				l := timed(5151, c)
				l.Table = machine(func(m *proctest.Machine) { m.PID, m.Procs[0].Condition = 5151, tc.condition })
				l.Log = h.logger()
				putLock(t, filepath.Dir(path), "a.lock", lockRecord(tc.beat, tc.mod...))
				for range 2 {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					_, err := l.Acquire(ctx, path)
					cancel()
					wantErrors(t, "acquire", err, ErrHeld)
					for _, line := range tc.want {
						if attrs := h.last(line[len("WARN "):]); attrs == nil || attrs["pid"].Uint64() != 4242 {
							t.Errorf("%q tells %v", line, attrs)
						}
					}
					wantLines(t, "acquire", h.since(t, path), tc.want...)
				}
			})
		})
	}
}

func TestBlockingTokenIsToldOnceAMinute(t *testing.T) {
	inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
		h := &keepingHandler{}
		l := timed(5151, c)
		l.Log = h.logger()
		putLock(t, filepath.Dir(path), "a.lock", lockRecord(time.Minute, dead))
		putLock(t, filepath.Dir(path), ".a.lock.reclaim", lockRecord(0))
		try := func() {
			if _, err := l.TryAcquire(path); err == nil {
				t.Error("it was taken")
			}
		}
		for range 30 {
			try()
			time.Sleep(2*time.Second - 1)
		}
		attrs := h.last("blocked")
		wantLines(t, "a minute", h.since(t, path), "WARN lock is blocked by a reclaim token")
		if attrs["pid"].Uint64() != 4242 || attrs["state"].String() != "alive" || attrs["repeated"].Any() != nil {
			t.Errorf("it tells %v", attrs)
		}
		time.Sleep(time.Second)
		try()
		attrs = h.last("blocked")
		wantLines(t, "a minute later", h.since(t, path), "WARN lock is blocked by a reclaim token")
		if n := attrs["repeated"]; n.Any() == nil || n.Int64() != 29 {
			t.Errorf("it tells %v", attrs)
		}
		// Another path is another matter.
		other := filepath.Join(filepath.Dir(path), "b.lock")
		putLock(t, filepath.Dir(path), "b.lock", lockRecord(time.Minute, dead))
		putLock(t, filepath.Dir(path), ".b.lock.reclaim", lockRecord(0))
		if _, err := l.TryAcquire(other); err == nil {
			t.Error("it was taken")
		}
		wantLines(t, "another path", h.since(t, other), "WARN lock is blocked by a reclaim token")
	})
}

func TestTakeOverIsTold(t *testing.T) {
	for what, lay := range map[string]func(t *testing.T, path string){
		"dead": func(t *testing.T, path string) {
			t.Helper()
			putLock(t, filepath.Dir(path), "a.lock", lockRecord(0, dead))
		},
		"another's": func(t *testing.T, path string) {
			t.Helper()
			putLock(t, filepath.Dir(path), "a.lock", lockRecord(76*time.Second, remote))
		},
		"torn for a time": func(t *testing.T, path string) { t.Helper(); put(t, path, nil, time.Minute) },
	} {
		t.Run(what, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
				lay(t, path)
				h := &keepingHandler{}
				l := timed(5151, c)
				l.Log = h.logger()
				lock, err := l.Acquire(t.Context(), path)
				if err != nil {
					t.Fatal(err)
				}
				got := h.since(t, path)
				wantLines(t, "acquire", got, "WARN took over lock", "DEBUG acquired lock")
				giveUp(t, lock)
			})
		})
	}
}

func TestBeatThatWaitedForAnAcquisitionThatFailedTellsNoLoss(t *testing.T) {
	inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
		h := &keepingHandler{}
		l := timed(4242, c)
		l.Log = h.logger()
		l.fault = func(step, _ string) error {
			if step == "published" {
				time.Sleep(beatInterval + time.Second) // by now a beat is due
				return syscall.EIO
			}
			return nil
		}
		_, err := l.TryAcquire(path)
		wantErrors(t, "try", err, syscall.EIO)
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, line := range h.since(t, path) {
			if !strings.HasPrefix(line, "DEBUG") {
				t.Errorf("logged %q", line)
			}
		}
		if got := names(t, filepath.Dir(path)); len(got) != 0 {
			t.Errorf("left behind: %q", got)
		}
	})
}

package sweep

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/fslock"
)

// buffer is a log of two goroutines, between which fake time alone puts no order.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Read(p)
}

// maintained is a sweeper at work in fake time on real files.
type maintained struct {
	*Sweeper
	log  buffer
	stop func()
}

func maintain(t *testing.T, s *Sweeper) *maintained {
	t.Helper()
	m := &maintained{Sweeper: s}
	s.Locker.Log = slog.New(slog.NewJSONHandler(&m.log, nil))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Maintain(ctx)
	}()
	m.stop = func() { cancel(); <-done }
	synctest.Wait()
	return m
}

// litter puts a dead token there.
func (m *maintained) litter(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(m.Root, "index/.a.lock.reclaim")
	putOld(t, path, recordOf(999, "here"), time.Hour)
	return path
}

// runsAfter checks that the next run comes after that time and not a second sooner.
func (m *maintained) runsAfter(t *testing.T, wait time.Duration) {
	t.Helper()
	path := m.litter(t)
	time.Sleep(wait - time.Second)
	synctest.Wait()
	if _, err := os.Lstat(path); err != nil {
		t.Fatalf("sooner than %v: %v", wait, err)
	}
	time.Sleep(time.Second)
	synctest.Wait()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("not after %v: %v", wait, err)
	}
}

// told takes the messages that were logged since, by level.
func (m *maintained) told(t *testing.T) []string {
	t.Helper()
	var told []string
	for d := json.NewDecoder(&m.log); ; {
		var line struct{ Level, Msg, Root, Path, Error string }
		if err := d.Decode(&line); err != nil {
			return told
		}
		switch {
		case line.Level == "WARN" && line.Root == m.Root && line.Error != "":
			told = append(told, "WARN "+line.Msg)
		case line.Level == "INFO" && line.Path != "":
			told = append(told, removedLine)
		default:
			t.Errorf("the log says %+v", line)
		}
	}
}

func (m *maintained) tells(t *testing.T, want ...string) {
	t.Helper()
	if told := m.told(t); !slices.Equal(told, want) {
		t.Errorf("the log has %q, want %q", told, want)
	}
}

const (
	removedLine = "INFO" // is the locker's
	leftLine    = "WARN sweep left out a place"
)

func TestMaintainRunsAtOnceThenDailyAndHourlyAfterErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := tree(t, "index/", "opencode/backups/s/")
		locked := filepath.Join(root, "opencode/backups/s/.locks")
		first := &maintained{Sweeper: &Sweeper{Root: root}}
		path := first.litter(t)
		start := time.Now()
		m := maintain(t, &Sweeper{Root: root, Locker: &fslock.Locker{Table: machine()}, Audit: logIn(t)})
		defer m.stop()
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) || time.Since(start) > time.Minute {
			t.Fatalf("not at once: %v after %v", err, time.Since(start))
		}
		for range 3 {
			m.runsAfter(t, sweepEvery)
		}
		m.tells(t, removedLine, removedLine, removedLine, removedLine)

		put(t, locked, false, "a file in the place of a folder: it cannot be listed")
		m.runsAfter(t, sweepEvery) // the rest goes on
		m.tells(t, removedLine, leftLine)
		for range 5 {
			m.runsAfter(t, retryEvery)
			m.tells(t, removedLine, leftLine)
		}
		if err := os.Remove(locked); err != nil {
			t.Fatal(err)
		}
		m.runsAfter(t, retryEvery)
		for range 2 {
			m.runsAfter(t, sweepEvery)
		}
		m.tells(t, removedLine, removedLine, removedLine)
		if n := len(entries(t, m.Audit)); n != 13 {
			t.Errorf("%d entries in the audit log for 13 removals", n)
		}
	})
}

func TestMaintainTriesAgainWhatCouldNotBeRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := tree(t, "index/")
		log := logIn(t)
		put(t, log.Path, true, "") // a directory in its place
		m := maintain(t, &Sweeper{Root: root, Locker: &fslock.Locker{Table: machine()}, Audit: log})
		defer m.stop()
		m.tells(t)
		path := m.litter(t)
		time.Sleep(sweepEvery + time.Second)
		synctest.Wait()
		m.tells(t, leftLine)
		if _, err := os.Lstat(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(log.Path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(retryEvery)
		synctest.Wait()
		m.tells(t, removedLine)
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
}

func TestMaintainOfARootThatIsRefusedOrMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := maintain(t, &Sweeper{Root: tree(t, "index/"), Locker: &fslock.Locker{Table: machine(), ReadOnly: true}})
		defer refused.stop()
		none := filepath.Join(t.TempDir(), "none")
		missing := maintain(t, &Sweeper{Root: none, Locker: &fslock.Locker{Table: machine()}, Audit: logIn(t)})
		defer missing.stop()
		time.Sleep(5*time.Hour + time.Minute)
		synctest.Wait()
		missing.tells(t)
		refused.tells(t, slices.Repeat([]string{"WARN sweep failed"}, 6)...)
		time.Sleep(18*time.Hour + 58*time.Minute)
		missing.runsAfter(t, time.Minute) // it is there now
	})
}

func TestMaintainEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := maintain(t, &Sweeper{Root: tree(t, "index/"), Locker: &fslock.Locker{Table: machine()}, Audit: logIn(t)})
		m.stop()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		m.Maintain(ctx)
		m.tells(t) // that it was ended is no error
		if d := time.Since(start); d != 0 {
			t.Errorf("it ended after %v", d)
		}
	})
}

func TestMaintainWithoutALockerIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := tree(t, "opencode/backups/s/", "index/")
		put(t, filepath.Join(root, "opencode/backups/s/.locks"), false, "")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		start := time.Now()
		(&Sweeper{Root: root}).Maintain(ctx)
		if d := time.Since(start); d != 2*time.Hour {
			t.Errorf("it ended after %v", d)
		}
	})
}

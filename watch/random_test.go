package watch

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/goleak"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
)

// lossy is the kernel's source, which loses some events and sometimes tells that it has lost some.
type lossy struct {
	source
	events chan fsnotify.Event
	errors chan error
	over   chan struct{}
	ended  sync.WaitGroup
}

// openLossy loses an event of n; 0: none.
func openLossy(seed uint64, n int) (source, error) {
	inner, err := openKernel()
	if err != nil {
		return nil, err
	}
	s := &lossy{source: inner, events: make(chan fsnotify.Event, burst), errors: make(chan error), over: make(chan struct{})}
	s.ended.Go(func() { s.forward(rand.New(rand.NewPCG(seed, 2)), n) })
	return s, nil
}

func (s *lossy) forward(rnd *rand.Rand, n int) {
	failures := s.source.Errors()
	for {
		var err error
		select {
		case <-s.over:
			return
		case err = <-failures:
		case ev, ok := <-s.source.Events():
			switch {
			case !ok:
				return
			case n > 0 && rnd.IntN(n) == 0:
				continue
			case n > 0 && rnd.IntN(20*n) == 0:
				err = fsnotify.ErrEventOverflow
			default:
				select {
				case <-s.over:
					return
				case s.events <- ev:
				}
			}
		}
		if err == nil {
			continue
		}
		select {
		case <-s.over:
			return
		case s.errors <- err:
		}
	}
}

func (s *lossy) Events() <-chan fsnotify.Event { return s.events }
func (s *lossy) Errors() <-chan error          { return s.errors }

func (s *lossy) Close() error {
	close(s.over)
	err := s.source.Close()
	s.ended.Wait()
	return err
}

// plainly tells all of a snapshot that two looks at the same things must agree in, whoever looks and however often.
func plainly(s *Snapshot) string {
	var b strings.Builder
	b.WriteString(lines(s))
	for _, e := range s.Entries {
		token := "none"
		if e.Token != nil {
			token = fmt.Sprint(e.Token.State, e.Token.PID, e.Token.Host, e.Token.Created.UnixMilli())
		}
		fmt.Fprintf(&b, "%s %s %q %q %q %v %v %d %s %q\n", e.Kind, e.Path, e.Name, e.LockOf, e.Root, e.Verdict.Flags,
			e.Verdict.Claimable.When, e.Epoch, token, e.Raw)
	}
	return b.String()
}

// disorder says what a snapshot is not that it must be, after the one before; "": nothing.
func disorder(before, s *Snapshot) string {
	roots := make(map[string]int)
	for i, r := range s.Roots {
		roots[r.Path] = i
	}
	was := make(map[key]*Entry)
	if before != nil {
		if s.Seq <= before.Seq {
			return fmt.Sprintf("number %d comes after %d", s.Seq, before.Seq)
		}
		for _, e := range before.Entries {
			was[keyOf(e)] = e
		}
	}
	for i, e := range s.Entries {
		if i > 0 {
			a := s.Entries[i-1]
			if cmp.Or(cmp.Compare(roots[a.Root], roots[e.Root]), cmp.Compare(a.Kind, e.Kind), cmp.Compare(a.Path, e.Path)) >= 0 {
				return fmt.Sprintf("%v %s comes after %v %s", e.Kind, e.Path, a.Kind, a.Path)
			}
		}
		if old := was[keyOf(e)]; strings.Contains(e.Path, "quiet") && old != nil && old != e && sameEntry(old, e) {
			return fmt.Sprintf("%s did not change, and is another one", e.Path)
		}
	}
	return ""
}

// mutator changes what lies below two roots at random, and those who hold it.
type mutator struct {
	t        *testing.T
	rnd      *rand.Rand
	mux, aft string
	holders  []holder
	claims   int
}

type holder struct {
	who  proc.Self
	kill func()
}

func (m *mutator) pick(from ...string) string { return from[m.rnd.IntN(len(from))] }

func (m *mutator) file() string {
	if m.rnd.IntN(2) == 0 {
		name := m.pick("a", "b", "c") + m.pick(".lease.json", ".lease.json", ".epoch", ".lock")
		if m.rnd.IntN(8) == 0 {
			name = ".registry-tmp-1.json"
		}
		return filepath.Join(m.mux, "leases", name)
	}
	name := m.pick("cache.lock", "writer.lease", ".cache.lock.reclaim", ".cache.lock.tmp.4194305.1.0",
		".cache.lock.tmp.4194306.1.0", ".writer.lease.reclaim", ".free.lock.reclaim", "data.bin")
	return filepath.Join(m.aft, m.pick("index", "inspect"), m.pick(".", "k1", "k2", "k2/sub"), name)
}

// content is of the kind that belongs to the path, more often than not.
func (m *mutator) content(path string) []byte {
	who := m.holders[m.rnd.IntN(len(m.holders))].who
	m.claims++
	n := m.rnd.IntN(12)
	switch {
	case n == 0:
		return nil
	case n == 1:
		return []byte("no record\n")
	case n < 4 != strings.HasSuffix(path, ".epoch"):
		return record.EncodeCounter(uint64(m.rnd.IntN(5)))
	case n < 6 != strings.HasSuffix(path, ".lease.json"):
		l := newLease(who, m.pick("a", "b", "c"), time.Now())
		l.ClaimID = fmt.Sprint(m.claims)
		return l.Encode()
	default:
		l := newLock(who, time.Now())
		l.WriterEpoch = fmt.Sprint(m.claims)
		return l.Encode()
	}
}

func (m *mutator) change() {
	path := m.file()
	switch m.rnd.IntN(16) {
	case 0, 1, 2, 3:
		_ = os.RemoveAll(path) // a directory may be in its place
		put(m.t, path, m.content(path))
	case 4, 5, 6: // in place
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			m.t.Fatal(err)
		}
		_ = os.WriteFile(path, m.content(path), 0o600)
	case 7:
		_ = os.Truncate(path, int64(m.rnd.IntN(100)))
	case 8:
		if f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0); err == nil {
			_, _ = f.WriteString(m.pick(" ", "\n", "x"))
			_ = f.Close()
		}
	case 9, 10:
		_ = os.RemoveAll(path)
	case 11, 12:
		_ = os.Rename(path, m.file())
	case 13:
		m.disturb()
	default:
		m.uproot(path)
	}
}

func (m *mutator) disturb() {
	i := m.rnd.IntN(len(m.holders))
	switch pid := m.holders[i].who.PID; m.rnd.IntN(4) {
	case 0:
		m.holders[i].kill()
		m.holders[i].who, m.holders[i].kill = startHolder(m.t)
	case 1, 2:
		halt(pid, true)
	default:
		halt(pid, false)
	}
}

// uproot changes directories.
func (m *mutator) uproot(path string) {
	root := m.pick(m.mux, m.aft)
	switch m.rnd.IntN(8) {
	case 0:
		_ = os.RemoveAll(filepath.Dir(path))
	case 1:
		_ = os.RemoveAll(root + ".old")
		_ = os.Rename(root, root+".old")
	case 2:
		_ = os.Rename(root+".old", root)
	case 3: // another one in its place
		_ = os.Rename(root, root+".new")
		_ = os.Rename(root+".old", root)
		_ = os.Rename(root+".new", root+".old")
	case 4:
		_ = os.Mkdir(path, 0o755)
	case 5:
		_ = os.Rename(filepath.Join(m.aft, "index", "k1"), filepath.Join(m.aft, "inspect", "k2"))
	case 6:
		_ = os.Rename(filepath.Join(m.aft, "inspect", "k2"), filepath.Join(m.aft, "index", "k1"))
	default:
		_ = os.RemoveAll(root)
	}
}

// putQuiet makes entries that nobody changes: only time does.
func putQuiet(t *testing.T, root string) {
	t.Helper()
	at := time.Now().Add(-time.Hour)
	dead := proc.Local().Self()
	dead.PID, dead.StartTicks, dead.StartUnix = 1<<22+1, 5, 5
	for i := range 5 {
		path := filepath.Join(root, "index", fmt.Sprint("quiet-", i), "cache.lock")
		putLock(t, path, newLock(dead, at))
		lease := filepath.Join(root, "leases", fmt.Sprint("quiet-", i, ".lease.json"))
		l := newLease(proc.Local().Self(), fmt.Sprint("quiet-", i), time.Now())
		putLease(t, filepath.Dir(lease), l)
		for _, path := range []string{path, lease, strings.TrimSuffix(lease, ".lease.json") + ".epoch"} {
			if err := os.Chtimes(path, at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	time.Sleep(100 * time.Millisecond) // stamps as new as a look are not believed
}

func TestAfterManyRandomChangesTheSnapshotIsThatOfAFreshLook(t *testing.T) {
	for _, c := range []struct {
		name   string
		lost   int // one event of so many
		rounds int
	}{{"all events come through", 0, 10}, {"events are lost", 4, 10}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() {
				c.rounds = 1
			}
			changeAtRandom(t, c.lost, c.rounds)
		})
	}
}

func changeAtRandom(t *testing.T, lost, rounds int) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	dir := t.TempDir()
	quiet := filepath.Join(dir, "quiet")
	putQuiet(t, quiet)
	m := &mutator{t: t, rnd: rand.New(rand.NewPCG(seed, 1)), mux: filepath.Join(dir, "mux"), aft: filepath.Join(dir, "aft")}
	m.holders = make([]holder, 3)
	for i := range m.holders {
		m.holders[i].who, m.holders[i].kill = startHolder(t)
	}
	w := &Watcher{Roots: []Root{{Path: m.mux}, {Path: quiet}, {Path: m.aft}}}
	w.open = func() (source, error) { return openLossy(seed, lost) }
	r := start(t, w)
	defer r.stop()
	for range rounds {
		for range 100 {
			m.change()
			if m.rnd.IntN(10) == 0 {
				time.Sleep(time.Duration(m.rnd.IntN(20)) * time.Millisecond)
			}
		}
		deadline := time.Now().Add(20 * time.Second)
		for {
			got, want := "", plainly(look(t, m.mux, quiet, m.aft))
			if s := r.latest(); s != nil {
				got = plainly(s)
			}
			if got == want {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("got\n%swant\n%s", got, want)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	var before *Snapshot
	for _, s := range r.all() {
		if what := disorder(before, s); what != "" {
			t.Fatalf("snapshot %d: %s", s.Seq, what)
		}
		before = s
	}
}

func TestTheSourceOfTheRandomTestLosesEventsAndSaysSoSometimes(t *testing.T) {
	defer goleak.VerifyNone(t)
	s, err := openLossy(1, 2)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := s.Add(dir); err != nil {
		t.Fatal(err)
	}
	const files = 300
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	go func() {
		for i := range files {
			_ = os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), bytes.Repeat([]byte("x"), i), 0o600)
		}
	}()
	heard, overflows := 0, 0
	for heard < files/3 || overflows == 0 {
		select {
		case <-s.Events():
			heard++
		case err := <-s.Errors():
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				t.Fatal(err)
			}
			overflows++
		case <-ctx.Done():
			t.Fatalf("%d events, %d overflows", heard, overflows)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

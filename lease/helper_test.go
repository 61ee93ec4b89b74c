package lease

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/proc/proctest"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

const agent = "agent-1"

// The made-up machine: ours is process 1000, the holder 4242, and 999999 is nobody.
const (
	selfPID   = 1000
	holderPID = 4242
	deadPID   = 999_999
)

// machine is a made-up machine called "vm", booted an hour ago. The holder started a minute after that.
func machine(mods ...func(*proctest.Machine)) proctest.Machine {
	m := proctest.Machine{
		Host: "vm", BootID: "boot-1", BootAt: time.Now().Add(-time.Hour).Truncate(time.Second), PIDNS: 1, Initial: true, TimeNS: 2, PID: selfPID,
		Procs: []proctest.Proc{
			{PID: selfPID, Start: 300_000, Name: "holdfast", PidfdIno: 70},
			{PID: holderPID, Start: 6000, Name: "agentmux-srv", PidfdIno: 71},
		},
	}
	for _, mod := range mods {
		mod(&m)
	}
	return m
}

// holder changes process 4242 of the machine.
func holder(change func(*proctest.Proc)) func(*proctest.Machine) {
	return func(m *proctest.Machine) { change(&m.Procs[1]) }
}

// store is a store of process 1000 on a made-up machine, over a fresh directory that has a flock file for the agent.
func store(tb testing.TB, mods ...func(*proctest.Machine)) *Store {
	tb.Helper()
	s := &Store{Dir: tb.TempDir(), Table: proctest.Table(machine(mods...))}
	put(tb, s, sectionSuffix, nil, 0)
	return s
}

// put writes one of the agent's files, last changed that long ago.
func put(tb testing.TB, s *Store, suffix string, data []byte, age time.Duration) {
	tb.Helper()
	path := s.path(agent, suffix)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		tb.Fatal(err)
	}
	at := time.Now().Add(-age)
	if err := os.Chtimes(path, at, at); err != nil {
		tb.Fatal(err)
	}
}

func putCounter(tb testing.TB, s *Store, text string) {
	tb.Helper()
	put(tb, s, counterSuffix, []byte(text), time.Hour)
}

// putLease writes a record that was renewed that long ago, and its file with it.
func putLease(tb testing.TB, s *Store, age time.Duration, mods ...func(*record.Lease)) *record.Lease {
	tb.Helper()
	r := recorded(s, age, mods...)
	put(tb, s, leaseSuffix, r.Encode(), age)
	return r
}

// recorded is what AgentMux's process 4242 would have recorded three minutes before its last renewal.
func recorded(s *Store, age time.Duration, mods ...func(*record.Lease)) *record.Lease {
	renewed := time.Now().Add(-age).UnixMilli()
	r := &record.Lease{
		InstanceID: agent, OwnerBootID: "owner-a", BlockID: "block-1", PID: holderPID,
		AcquiredAtMS: renewed - 180_000, RenewedAtMS: renewed, Epoch: 5, Hostname: "vm",
		PIDStartS: uint64(s.Table.BootTime().Unix()) + 60, Channel: "local-main-aaaaaa-bbbbbbbb", Version: "0.57.4", ClaimID: "claim-a",
	}
	for _, mod := range mods {
		mod(r)
	}
	return r
}

// asOurs adds what our own build would have recorded.
func asOurs(r *record.Lease) {
	r.Ours = record.Ours{PIDNS: 1, PidfdIno: 71, TimeNS: 2, KernelBootID: "boot-1", PIDStartTicks: 6000}
}

func byPID(pid uint32) func(*record.Lease)   { return func(r *record.Lease) { r.PID = pid } }
func onHost(host string) func(*record.Lease) { return func(r *record.Lease) { r.Hostname = host } }
func startMoved(s int64) func(*record.Lease) {
	return func(r *record.Lease) { r.PIDStartS += uint64(s) }
}
func withEpoch(e uint64) func(*record.Lease) { return func(r *record.Lease) { r.Epoch = e } }
func julyFormat(r *record.Lease) {
	r.Epoch, r.Hostname, r.PIDStartS, r.Channel, r.Version, r.ClaimID = 0, "", 0, "", "", ""
}

func other(owner string) Claimant {
	return Claimant{Owner: owner, Block: "block-9", Channel: "holdfast", Version: "1"}
}
func sameOwner(block string) Claimant { return Claimant{Owner: "owner-a", Block: block} }

// readLease reads back what is on the disk.
func readLease(tb testing.TB, s *Store) record.Lease {
	tb.Helper()
	f, err := record.Read(s.path(agent, leaseSuffix))
	if err != nil {
		tb.Fatal(err)
	}
	r, err := record.DecodeLease(f.Path, f.Data)
	if err != nil {
		tb.Fatalf("%v in\n%s", err, f.Data)
	}
	return r
}

// readCount reads back the counter.
func readCount(tb testing.TB, s *Store) string {
	tb.Helper()
	b, err := os.ReadFile(s.path(agent, counterSuffix))
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

// want is what a look must show. In counts from the look.
type want struct {
	state verdict.State
	cause string
	when  verdict.When
	in    time.Duration
	flags verdict.Flag
	says  []string
}

func inspect(tb testing.TB, s *Store, w want) Info {
	tb.Helper()
	info, err := s.Inspect(agent)
	if err != nil {
		tb.Fatal(err)
	}
	v := info.Verdict
	if v.State != w.state || v.Cause != w.cause || v.Claimable.When != w.when || v.Flags != w.flags {
		tb.Errorf("got %v (%s), claimable %v, flags %v; want %v (%s), claimable %v, flags %v\nsentence: %s",
			v.State, v.Cause, v.Claimable.When, v.Flags.Strings(), w.state, w.cause, w.when, w.flags.Strings(), v.Sentence)
	}
	if at := v.Claimable.At; at.IsZero() != (w.in == 0) || w.in != 0 && (at.Sub(info.Facts.Look)-w.in).Abs() > 2*time.Second {
		tb.Errorf("claimable in %v, want %v", at.Sub(info.Facts.Look), w.in)
	}
	for _, part := range w.says {
		if !strings.Contains(v.Sentence, part) {
			tb.Errorf("the sentence does not say %q: %s", part, v.Sentence)
		}
	}
	return info
}

// entry is a file as it is compared.
type entry struct {
	data  string
	mtime time.Time
	mode  fs.FileMode
}

// contents are the files of a directory and the directory itself, as ".".
func contents(tb testing.TB, dir string) map[string]entry {
	tb.Helper()
	names, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	all := map[string]entry{}
	for _, name := range append([]string{"."}, namesOf(names)...) {
		st, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			tb.Fatal(err)
		}
		e := entry{mtime: st.ModTime(), mode: st.Mode()}
		if st.Mode().IsRegular() && st.Size() < 1<<20 {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil && !errors.Is(err, fs.ErrPermission) {
				tb.Fatal(err)
			}
			e.data = string(b)
		}
		all[name] = e
	}
	return all
}

func namesOf(entries []fs.DirEntry) []string {
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// writesNothing checks that a call leaves every byte and time of the directory alone.
func writesNothing(tb testing.TB, dir string, call func()) {
	tb.Helper()
	before := contents(tb, dir)
	call()
	after := contents(tb, dir)
	if maps.Equal(before, after) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if before[name] != after[name] {
			tb.Errorf("%s was %+v, is %+v", name, before[name], after[name])
		}
	}
	for name := range after {
		if _, ok := before[name]; !ok {
			tb.Errorf("%s is new", name)
		}
	}
}

// refused checks that a claim is refused with exactly these sentinels, and that nothing was written.
func refused(tb testing.TB, s *Store, who Claimant, sentinels ...string) {
	tb.Helper()
	var err error
	writesNothing(tb, s.Dir, func() { _, err = s.Claim(tb.Context(), agent, who) })
	if got := is(err); !slices.Equal(got, sentinels) {
		tb.Fatalf("refused as %q, want %q: %v", got, sentinels, err)
	}
}

// refusal is refused for a lease that is held, and returns what it says.
func refusal(tb testing.TB, s *Store, who Claimant) *ConflictError {
	tb.Helper()
	refused(tb, s, who, "held")
	_, err := s.Claim(tb.Context(), agent, who)
	e, ok := errors.AsType[*ConflictError](err)
	if !ok {
		tb.Fatal(err)
	}
	return e
}

// granted checks that a claim is granted with that epoch, on the disk too, and returns the handle.
func granted(tb testing.TB, s *Store, who Claimant, epoch uint64) *Lease {
	tb.Helper()
	l, err := s.Claim(tb.Context(), agent, who)
	if err != nil {
		tb.Fatal(err)
	}
	r := readLease(tb, s)
	if l.Epoch() != epoch || r.Epoch != epoch || l.ClaimID() == "" || r.ClaimID != l.ClaimID() || r.InstanceID != agent {
		tb.Fatalf("epoch %d and claim %q, on the disk %+v, want epoch %d", l.Epoch(), l.ClaimID(), r, epoch)
	}
	if who.Owner != "" && (r.OwnerBootID != who.Owner || r.BlockID != who.Block || r.Channel != who.Channel || r.Version != who.Version) {
		tb.Fatalf("claimed as %+v, on the disk %+v", who, r)
	}
	if n, err := record.DecodeCounter("", []byte(readCount(tb, s))); err != nil || n < epoch {
		tb.Fatalf("the counter is %d (%v), epoch %d was given out", n, err, epoch)
	}
	return l
}

// mine checks whether a handle still has its lease, by Verify and by Renew.
func mine(tb testing.TB, l *Lease) {
	tb.Helper()
	if err := l.Verify(tb.Context()); err != nil {
		tb.Errorf("verify: %v", err)
	}
	if err := l.Renew(tb.Context()); err != nil {
		tb.Errorf("renew: %v", err)
	}
	if isClosed(l.Lost()) {
		tb.Error("a loss was told")
	}
}

// lost checks that a handle has lost its lease to that owner ("" when nobody is named), says so everywhere, and that
// nothing it does touches what is there now.
func lost(tb testing.TB, l *Lease, owner string) {
	tb.Helper()
	writesNothing(tb, l.store.Dir, func() {
		for _, name := range []string{"verify", "renew"} {
			call := map[string]func(context.Context) error{"verify": l.Verify, "renew": l.Renew}[name]
			err := call(tb.Context())
			e, ok := errors.AsType[*ConflictError](err)
			if !ok || !slices.Equal(is(err), []string{"lost"}) || e.Op != name {
				tb.Errorf("%s: %v", name, err)
				continue
			}
			if named := e.Holder != nil; named != (owner != "") || named && e.Holder.OwnerBootID != owner {
				tb.Errorf("%s: lost to %+v, want %q", name, e.Holder, owner)
			}
		}
		if err := l.Release(); err != nil {
			tb.Errorf("release: %v", err)
		}
	})
}

// logged collects what a store logs.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

// lines are the levels and messages, without times.
func (l *logged) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := strings.TrimSuffix(l.buf.String(), "\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func (l *logged) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "path" || a.Key == "error" {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// tableOf is another process's view of the same made-up machine.
func tableOf(pid int, mods ...func(*proctest.Machine)) *proc.Table {
	return proctest.Table(machine(append(mods, func(m *proctest.Machine) { m.PID = pid })...))
}

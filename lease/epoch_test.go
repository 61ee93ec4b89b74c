package lease

import (
	"context"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/fslock/audit"
	"holdfast/fslock/record"
)

func auditLog(tb testing.TB) *audit.Log {
	tb.Helper()
	return &audit.Log{Path: filepath.Join(tb.TempDir(), "holdfast", "audit.jsonl")}
}

// audited are the entries of the log.
// audited are the entries of what was to be done, without its outcomes.
func audited(tb testing.TB, log *audit.Log) []audit.Entry {
	tb.Helper()
	var all []audit.Entry
	for e, err := range log.Entries() {
		if err != nil {
			tb.Fatal(err)
		}
		if e.Action != audit.ActionFailed && e.Action != audit.ActionDone {
			all = append(all, e)
		}
	}
	return all
}

// failures is how many entries say that another one was not done.
func failures(tb testing.TB, log *audit.Log) (n int) {
	tb.Helper()
	for e, err := range log.Entries() {
		if err == nil && e.Action == audit.ActionFailed {
			n++
		}
	}
	return n
}

func remember(tb testing.TB, s *Store, log *audit.Log, epoch uint64) {
	tb.Helper()
	err := log.Append(audit.Entry{Action: audit.ActionBreak, Path: s.path(agent, leaseSuffix), EpochOld: epoch})
	if err != nil {
		tb.Fatal(err)
	}
}

func TestDamagedCounterIsRepaired(t *testing.T) {
	s, log := store(t), auditLog(t)
	putCounter(t, s, "x")
	refused(t, s, other("owner-b"), "epoch")
	var out logged
	s.Log = out.logger()
	was, err := s.SetEpoch(t.Context(), agent, Repair{Epoch: 7, Reason: "disk was full", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	if was.Counter.Problem == nil || was.Highest() != 0 || was.Next != 0 || was.Refusal == "" || was.Path != s.path(agent, leaseSuffix) {
		t.Errorf("before: %+v", was)
	}
	all := audited(t, log)
	if len(all) != 1 {
		t.Fatalf("%+v", all)
	}
	e := all[0]
	if e.Action != audit.ActionEpoch || e.Kind != "lease" || e.ID != agent || e.Path != audit.Canonical(s.path(agent, leaseSuffix)) ||
		e.Reason != "disk was full" || string(e.Before) != "x" || e.EpochOld != 0 || e.EpochNew != 7 || e.Who.PID != os.Getpid() {
		t.Errorf("%+v", e)
	}
	if got := out.lines(); !slices.Equal(got, []string{`level=WARN msg="epoch counter set" id=agent-1 epoch=7 highest=0`}) {
		t.Errorf("logged %q", got)
	}
	now, err := s.Epochs(agent, log)
	if err != nil || now.Next != 8 || now.Logged != 7 || now.Counter.Value != 7 || now.Refusal != "" {
		t.Errorf("after: %+v, %v", now, err)
	}
	granted(t, s, other("owner-b"), 8)
}

func TestLostCounterBesideAnUnreadableLease(t *testing.T) {
	s, log := store(t), auditLog(t)
	put(t, s, leaseSuffix, []byte("{"), time.Hour)
	refused(t, s, other("owner-b"), "epoch")
	if e, err := s.Epochs(agent, log); err != nil || e.Problem == nil || !e.Counter.Missing || e.Refusal == "" {
		t.Errorf("%+v, %v", e, err)
	}
	if _, err := s.SetEpoch(t.Context(), agent, Repair{Epoch: 4, Reason: "lost", Log: log}); err != nil {
		t.Fatal(err)
	}
	if e := audited(t, log)[0]; e.Before != nil || e.Found != "" {
		t.Errorf("nothing was there: %+v", e)
	}
	granted(t, s, other("owner-b"), 5)
}

func TestRepairLeavesTheLeaseAlone(t *testing.T) {
	s, log := store(t), auditLog(t)
	held := granted(t, s, sameOwner("block-1"), 1)
	if _, err := s.SetEpoch(t.Context(), agent, Repair{Epoch: 30, Reason: "moved", Log: log}); err != nil {
		t.Fatal(err)
	}
	if e := audited(t, log)[0]; e.Nonce != held.ClaimID() || e.EpochOld != 1 || string(e.Before) != "1\n" {
		t.Errorf("%+v", e)
	}
	mine(t, held)
	if err := held.Release(); err != nil {
		t.Fatal(err)
	}
	granted(t, s, other("owner-b"), 31)
}

// refusedRepair checks that a repair is refused, and that neither counter nor audit log knows of it. It returns what
// the person is told.
func refusedRepair(t *testing.T, s *Store, id string, r Repair, want error) string {
	t.Helper()
	before, _ := os.ReadFile(r.Log.Path)
	var err error
	writesNothing(t, s.Dir, func() { _, err = s.SetEpoch(t.Context(), id, r) })
	if !errors.Is(err, want) || !strings.HasPrefix(err.Error(), "set epoch of lease ") {
		t.Errorf("refused as %v, want %v", err, want)
	}
	if after, _ := os.ReadFile(r.Log.Path); string(after) != string(before) {
		t.Errorf("the audit log tells of it: %s", after)
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestOldEpochsDoNotComeAgainUnforced(t *testing.T) {
	for _, c := range []struct {
		what                      string
		counter, recorded, logged uint64
		says                      string
	}{
		{"the counter is ahead", 9, 5, 3, "8 is below the counter (9);"},
		{"the record is ahead", 5, 9, 8, "8 is below the lease's record (9);"},
		{"the audit log is ahead", 5, 8, 9, "8 is below what the audit log knows (9);"},
		{"all are", 9, 9, 9, "8 is below the counter (9) and the lease's record (9) and what the audit log knows (9);"},
	} {
		t.Run(c.what, func(t *testing.T) {
			s, log := store(t), auditLog(t)
			putCounter(t, s, string(record.EncodeCounter(c.counter)))
			putLease(t, s, time.Second, withEpoch(c.recorded))
			remember(t, s, log, c.logged)
			says := refusedRepair(t, s, agent, Repair{Epoch: 8, Reason: "why", Log: log}, ErrEpochBelow)
			if !strings.Contains(says, c.says) || !strings.Contains(says, "old epochs could come again") || !strings.Contains(says, s.path(agent, counterSuffix)) {
				t.Error(says)
			}
			_, err := s.SetEpoch(t.Context(), agent, Repair{Epoch: 8, Reason: "why", Log: log})
			if e, ok := errors.AsType[*EpochBelowError](err); !ok || e.Known.Highest() != 9 || e.Epoch != 8 || e.Path != s.path(agent, counterSuffix) {
				t.Fatal(err)
			}
			was, err := s.SetEpoch(t.Context(), agent, Repair{Epoch: 8, Reason: "why", Force: true, Log: log})
			if err != nil || was.Counter.Value != c.counter || was.Recorded != c.recorded || was.Logged != c.logged {
				t.Fatalf("forced: %+v, %v", was, err)
			}
			if got := readCount(t, s); got != "8\n" {
				t.Errorf("the counter is %q", got)
			}
			// The audit log knows what was there before: the way back up is no matter of force.
			if _, err := s.SetEpoch(t.Context(), agent, Repair{Epoch: 9, Reason: "why", Log: log}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRepairsThatAreRefusedWhateverIsThere(t *testing.T) {
	s, log := store(t), auditLog(t)
	putCounter(t, s, "x")
	ok := Repair{Epoch: 7, Reason: "why", Force: true, Log: log}
	with := func(change func(*Repair)) Repair { r := ok; change(&r); return r }
	refusedRepair(t, s, "a/b", ok, ErrBadID)
	refusedRepair(t, s, agent, with(func(r *Repair) { r.Reason = " \n" }), ErrNoReason)
	refusedRepair(t, s, agent, with(func(r *Repair) { r.Epoch = math.MaxUint64 }), ErrEpoch)
	readOnly := &Store{Dir: s.Dir, ReadOnly: true}
	refusedRepair(t, readOnly, agent, ok, ErrReadOnly)
	if e, err := readOnly.Epochs(agent, log); err != nil || e.Counter.Problem == nil {
		t.Errorf("a look at a read-only store: %+v, %v", e, err)
	}
	if _, err := s.Epochs("a/b", log); !errors.Is(err, ErrBadID) {
		t.Error(err)
	}
	gone := &Store{Dir: filepath.Join(s.Dir, "gone"), Table: s.Table}
	if _, err := gone.SetEpoch(t.Context(), agent, ok); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := os.Stat(log.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an audit log is there: %v", err)
	}
}

func TestNoRepairWithoutAnAuditLog(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := store(t)
	putCounter(t, s, "x")
	for what, path := range map[string]string{
		"a directory in its place":  dir,
		"no state directory":        filepath.Join(file, "audit.jsonl"),
		"a guard that is no file":   filepath.Join(dir, "a.jsonl"),
		"a directory made meantime": filepath.Join(dir, "b.jsonl"),
	} {
		t.Run(what, func(t *testing.T) {
			s.fault = nil
			switch what {
			case "a guard that is no file":
				if err := os.Mkdir(filepath.Join(dir, ".a.jsonl.guard"), 0o700); err != nil {
					t.Fatal(err)
				}
			case "a directory made meantime":
				s.fault = func(step string) error {
					if step == "judged" {
						return os.Mkdir(path, 0o700)
					}
					return nil
				}
			}
			says := refusedRepair(t, s, agent, Repair{Epoch: 7, Reason: "why", Force: true, Log: &audit.Log{Path: path}}, ErrAudit)
			if !strings.Contains(says, filepath.Dir(path)) {
				t.Errorf("it does not say where: %s", says)
			}
		})
	}
}

func TestRepairWaitsForTheCriticalSection(t *testing.T) {
	dir, log := t.TempDir(), auditLog(t)
	c := startChild(t)
	c.send(order{Do: "claim", Dir: dir, ID: agent, Claimant: sameOwner("block-1"), Step: "counted", Fault: "wait"})
	if a := c.receive(); a.At != "counted" {
		t.Fatalf("%+v", a)
	}
	s := &Store{Dir: dir}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.SetEpoch(ctx, agent, Repair{Epoch: 7, Reason: "why", Log: log}); !errors.Is(err, ErrBusy) {
		t.Error(err)
	}
	if all := audited(t, log); all != nil {
		t.Errorf("%+v", all)
	}
	c.send(order{}) // go on
	if a := c.receive(); a.Err != "" || a.Epoch != 1 {
		t.Fatalf("%+v", a)
	}
	was, err := s.SetEpoch(t.Context(), agent, Repair{Epoch: 7, Reason: "why", Log: log})
	if err != nil || was.Recorded != 1 {
		t.Errorf("%+v, %v", was, err)
	}
}

// killedEnv makes this test's child: the directory, and the path of the audit log.
const killedEnv = "HOLDFAST_LEASE_TEST_REPAIR"

func TestKilledBetweenAuditLogAndCounter(t *testing.T) {
	if dir, path, ok := strings.Cut(os.Getenv(killedEnv), "\n"); ok {
		s := &Store{Dir: dir, fault: func(step string) error {
			if step != "audited" {
				return nil
			}
			self, err := os.FindProcess(os.Getpid())
			if err == nil {
				err = self.Kill()
			}
			time.Sleep(time.Minute) // the signal may take a moment
			return err
		}}
		_, err := s.SetEpoch(t.Context(), agent, Repair{Epoch: 7, Reason: "why", Log: &audit.Log{Path: path}})
		t.Fatal("it lives on: ", err)
	}
	s, log := store(t), auditLog(t)
	putCounter(t, s, "5\n")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), killedEnv+"="+s.Dir+"\n"+log.Path)
	if out, err := cmd.CombinedOutput(); err == nil || strings.Contains(string(out), "it lives on") {
		t.Fatalf("%v: %s", err, out)
	}
	if got := readCount(t, s); got != "5\n" {
		t.Errorf("the counter is %q", got)
	}
	if all := audited(t, log); len(all) != 1 || all[0].EpochNew != 7 || all[0].EpochOld != 5 {
		t.Errorf("%+v", all)
	}
	// What was meant counts as given out: whether it was done nobody knows.
	says := refusedRepair(t, s, agent, Repair{Epoch: 6, Reason: "why", Log: log}, ErrEpochBelow)
	if !strings.Contains(says, "below what the audit log knows (7)") {
		t.Error(says)
	}
	if _, err := s.SetEpoch(t.Context(), agent, Repair{Epoch: 7, Reason: "again", Log: log}); err != nil {
		t.Error(err)
	}
}

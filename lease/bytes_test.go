package lease

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"holdfast/fslock/proc/proctest"
	"holdfast/fslock/record"
)

// originalKeys are AgentMux's, in the order in which it writes them; ourKeys come after them.
var (
	originalKeys = []string{
		"instance_id", "owner_boot_id", "block_id", "session_id", "pid", "acquired_at_ms", "renewed_at_ms", "epoch", "hostname",
		"pid_start_s", "channel", "version", "claim_id",
	}
	ourKeys = []string{"pid_ns", "pidfd_ino", "time_ns", "beat_boot_ms", "kernel_boot_id", "pid_start_ticks"}
)

// keys are the keys of the one object that data is, in their order.
func keys(t *testing.T, data []byte) []string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	var all []string
	for depth := 0; ; {
		tok, err := d.Token()
		if err != nil {
			break
		}
		switch tok {
		case json.Delim('{'):
			depth++
			continue
		case json.Delim('}'):
			depth--
			continue
		}
		all = append(all, fmt.Sprint(tok))
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func raw(t *testing.T, s *Store) []byte {
	t.Helper()
	b, err := os.ReadFile(s.path(agent, leaseSuffix))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestClaimWritesAsTheOriginalDoes(t *testing.T) {
	s := store(t)
	l := granted(t, s, Claimant{Owner: "boot-a", Block: "block-1", Session: "sess-42", Channel: "stable", Version: "0.57.4"}, 1)
	data := raw(t, s)
	r := readLease(t, s)
	want := fmt.Sprintf(`{
  "instance_id": "agent-1",
  "owner_boot_id": "boot-a",
  "block_id": "block-1",
  "session_id": "sess-42",
  "pid": 1000,
  "acquired_at_ms": %d,
  "renewed_at_ms": %d,
  "epoch": 1,
  "hostname": "vm",
  "pid_start_s": %d,
  "channel": "stable",
  "version": "0.57.4",
  "claim_id": "%s",
  "pid_ns": 1,
  "pidfd_ino": 70,
  "time_ns": 2,
  "beat_boot_ms": %d,
  "kernel_boot_id": "boot-1",
  "pid_start_ticks": 300000
}
`, r.AcquiredAtMS, r.AcquiredAtMS, s.Table.BootTime().Unix()+3000, l.ClaimID(), r.Ours.BeatBootMS)
	if string(data) != want {
		t.Errorf("wrote\n%s\nwant\n%s", data, want)
	}
	if got := keys(t, data); !slices.Equal(got, slices.Concat(originalKeys, ourKeys)) {
		t.Errorf("keys %q", got)
	}
	if got := readCount(t, s); got != "1\n" {
		t.Errorf("the counter is %q", got)
	}
	if b, err := os.ReadFile(s.path(agent, sectionSuffix)); err != nil || len(b) != 0 {
		t.Errorf("the flock file has %q (%v)", b, err)
	}
	if entries, err := os.ReadDir(s.Dir); err != nil || len(entries) != 3 {
		t.Errorf("%d files (%v)", len(entries), err)
	}
	granted(t, s, Claimant{Owner: "boot-a", Block: "block-1"}, 1)
	if !strings.Contains(string(raw(t, s)), "\n  \"session_id\": null,\n") {
		t.Errorf("no session is null:\n%s", raw(t, s))
	}
}

func TestHostNameIsRecordedInLowerCase(t *testing.T) {
	s := store(t)
	s.Table = tableOf(selfPID, func(m *proctest.Machine) { m.Host = " VM.Example " })
	granted(t, s, sameOwner("block-1"), 1)
	if r := readLease(t, s); r.Hostname != "vm.example" {
		t.Errorf("recorded on %q", r.Hostname)
	}
}

func TestRenewalMovesTheStampsAlone(t *testing.T) {
	s := store(t)
	l := granted(t, s, Claimant{Owner: "owner-a", Block: "block-1", Session: "s", Channel: "c", Version: "v"}, 1)
	was := readLease(t, s)
	was.RenewedAtMS -= 2000
	was.Ours.BeatBootMS -= 2000
	was.PIDStartS++ // a clock step moved it since
	was.Extra = []record.Extra{{Key: "note", Raw: []byte(`{"a": [1, 2.50, "x"]}`)}, {Key: "Pid", Raw: []byte("-0")}}
	put(t, s, leaseSuffix, was.Encode(), 2*sec)
	if err := l.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	now := readLease(t, s)
	if now.RenewedAtMS < was.RenewedAtMS+2000 || now.Ours.BeatBootMS < was.Ours.BeatBootMS+2000 || now.PIDStartS != was.PIDStartS-1 {
		t.Errorf("stamps: %+v, was %+v", now, was)
	}
	now.RenewedAtMS, now.Ours.BeatBootMS, now.PIDStartS = was.RenewedAtMS, was.Ours.BeatBootMS, was.PIDStartS
	if !bytes.Equal(now.Encode(), was.Encode()) {
		t.Errorf("renewed to\n%s\nfrom\n%s", now.Encode(), was.Encode())
	}
	if got := keys(t, raw(t, s)); !slices.Equal(got, slices.Concat(originalKeys, ourKeys, []string{"note", "Pid"})) {
		t.Errorf("keys %q", got)
	}
	if got := readCount(t, s); got != "1\n" {
		t.Errorf("the counter is %q", got)
	}
}

func TestRenewalOfARecordOfAnOriginal(t *testing.T) {
	t.Run("its own claim, rewritten by a build that knew less", func(t *testing.T) {
		s := store(t)
		l := granted(t, s, sameOwner("block-1"), 1)
		r := readLease(t, s)
		r.Ours, r.ClaimID, r.BlockID = record.Ours{}, "", ""
		put(t, s, leaseSuffix, r.Encode(), 0)
		mine(t, l)
		now := readLease(t, s)
		if now.ClaimID != "" || now.BlockID != "" || now.Ours.KernelBootID != "boot-1" || now.Ours.PIDStartTicks != 300_000 || now.Ours.BeatBootMS == 0 {
			t.Errorf("renewed to %+v", now)
		}
	})
	t.Run("another process's, through a rebuilt handle", func(t *testing.T) {
		for name, tc := range map[string]struct {
			ours record.Ours
			beat bool
		}{
			"AgentMux's":                         {record.Ours{}, false},
			"of this boot and time namespace":    {record.Ours{KernelBootID: "boot-1", TimeNS: 2, PIDNS: 1, BeatBootMS: 1}, true},
			"of another time namespace":          {record.Ours{KernelBootID: "boot-1", TimeNS: 3, PIDNS: 1, BeatBootMS: 1}, false},
			"of another boot":                    {record.Ours{KernelBootID: "boot-0", TimeNS: 2, PIDNS: 1, BeatBootMS: 1}, false},
			"of this boot, in no time namespace": {record.Ours{KernelBootID: "boot-1", PIDNS: 1, BeatBootMS: 1}, false},
		} {
			t.Run(name, func(t *testing.T) {
				s := store(t)
				was := putLease(t, s, 3*sec, func(r *record.Lease) { r.Ours = tc.ours })
				l, err := s.Handle(agent, "claim-a")
				if err != nil {
					t.Fatal(err)
				}
				mine(t, l)
				now := readLease(t, s)
				if now.RenewedAtMS <= was.RenewedAtMS || now.PIDStartS != was.PIDStartS || now.PID != was.PID || now.ClaimID != "claim-a" {
					t.Errorf("renewed to %+v", now)
				}
				if (now.Ours.BeatBootMS > 1) != tc.beat || !tc.beat && now.Ours.BeatBootMS != 0 {
					t.Errorf("by the boot-time clock %d", now.Ours.BeatBootMS)
				}
				now.Ours.BeatBootMS, was.Ours.BeatBootMS = 0, 0
				if now.Ours != was.Ours {
					t.Errorf("recorded %+v of a process that is not this one", now.Ours)
				}
			})
		}
	})
}

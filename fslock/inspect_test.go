package fslock

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/proc/proctest"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

func TestFieldCasesOfLocks(t *testing.T) {
	noStart := func(r *record.Lock) { r.ProcessStartTime = nil }
	otherStart := func(r *record.Lock) { r.ProcessStartTime = new(uint64(1)) }
	otherBoot := func(r *record.Lock) { r.BootID = new("before") }
	legacy := func(r *record.Lock) { r.ProcessStartTime, r.BootID, r.WriterEpoch = nil, nil, "" }
	host := func(name string) func(*record.Lock) { return func(r *record.Lock) { r.Hostname = name } }
	stopped := func(m *proctest.Machine) { m.Procs[0].Condition = proc.Stopped }
	frozen := func(m *proctest.Machine) { m.Procs[0].Condition = proc.Frozen }

	type recordMod = func(*record.Lock)
	type machineMod = func(*proctest.Machine)
	for _, tc := range []struct {
		what    string
		beat    time.Duration
		record  []recordMod
		machine []machineMod
		want    want
		at      time.Duration // of claimable, where it is At
		says    string        // in the sentence
	}{
		{what: "held", beat: 2 * time.Second, want: want{verdict.Live, "", verdict.Event, 0}, says: "pid 4242 runs"},
		{
			what: "sandbox: the pid has been taken by another process", beat: 45 * time.Second, record: []recordMod{otherStart},
			want: want{verdict.Dead, "recycled", verdict.Now, 0}, says: "pid 4242 is now another process (node",
		},
		{
			what: "sandbox without a start", beat: 45 * time.Second, record: []recordMod{noStart},
			want: want{verdict.Late, "", verdict.Event, verdict.Legacy}, says: "(node)",
		},
		{
			what: "old file without start and boot id", beat: 2 * time.Second, record: []recordMod{legacy},
			want: want{verdict.Live, "", verdict.Event, verdict.Legacy},
		},
		{
			what: "paused", beat: time.Minute, machine: []machineMod{stopped},
			want: want{verdict.Stopped, "", verdict.Event, 0}, says: "kill -CONT 4242",
		},
		{
			what: "paused without a start", beat: time.Minute, record: []recordMod{legacy}, machine: []machineMod{stopped},
			want: want{verdict.Stopped, "", verdict.Event, verdict.Legacy},
		},
		{what: "frozen", beat: time.Minute, machine: []machineMod{frozen}, want: want{verdict.Stopped, "", verdict.Event, 0}},
		{
			what: "reboot", beat: 2 * time.Hour, record: []recordMod{otherBoot},
			want: want{verdict.Dead, "reboot", verdict.Now, 0},
		},
		{
			what: "guest: a VM shares the disk and the host name", beat: 3 * time.Second, record: []recordMod{otherBoot},
			want: want{verdict.Remote, "", verdict.At, 0}, at: 72 * time.Second,
		},
		{
			what: "reboot of a machine of another name", beat: 2 * time.Hour, record: []recordMod{otherBoot, host("there")},
			want: want{verdict.Expired, "", verdict.Now, 0}, says: "from there",
		},
		{
			what: "busy", beat: 2 * time.Second, record: []recordMod{func(r *record.Lock) { r.CreatedAtMS = ms(-11 * time.Minute) }},
			want: want{verdict.Live, "", verdict.Event, verdict.LongHeld},
		},
		{
			what: "container re-created", beat: 30 * time.Second, record: []recordMod{dead, host("0a1b2c3d4e5f")},
			want: want{verdict.Unknown, "", verdict.At, 0}, at: 45 * time.Second,
		},
		{
			what: "container re-created, silent", beat: 76 * time.Second, record: []recordMod{dead, host("0a1b2c3d4e5f")},
			want: want{verdict.Expired, "", verdict.Now, 0},
		},
		{
			what: "renamed host", beat: 2 * time.Minute, record: []recordMod{host("old-name")}, machine: []machineMod{stopped},
			want: want{verdict.Stopped, "", verdict.Event, 0},
		},
		{
			what: "case of the host name", beat: 2 * time.Second, record: []recordMod{host("HERE."), dead, legacy},
			want: want{verdict.Dead, "gone", verdict.Now, 0},
		},
		{
			what: "zombie", beat: 2 * time.Second,
			machine: []machineMod{func(m *proctest.Machine) { m.Procs[0].Zombie, m.Procs[0].Parent = true, 5151 }},
			want:    want{verdict.Dead, "zombie", verdict.Now, 0}, says: "pid 5151 (indexer)",
		},
		{
			what: "thread", beat: 2 * time.Second,
			machine: []machineMod{func(m *proctest.Machine) { m.Procs[0].Thread = true }},
			want:    want{verdict.Dead, "recycled", verdict.Now, 0},
		},
		{
			what: "hidden /proc", beat: 2 * time.Second,
			machine: []machineMod{func(m *proctest.Machine) { m.Procs[0].Hidden, m.HidesOthers = true, true }},
			want:    want{verdict.Live, "", verdict.Event, verdict.Legacy},
		},
		{
			what: "nobody of that pid where /proc hides others", beat: 2 * time.Second, record: []recordMod{dead},
			machine: []machineMod{func(m *proctest.Machine) { m.HidesOthers = true }},
			want:    want{verdict.Unknown, "", verdict.At, 0}, at: 73 * time.Second,
		},
		{
			what: "nobody of that pid, seen from a container", beat: 2 * time.Second, record: []recordMod{dead},
			machine: []machineMod{func(m *proctest.Machine) { m.Initial = false }},
			want:    want{verdict.Unknown, "", verdict.At, 0}, at: 73 * time.Second,
		},
		{
			what: "in a sandbox, seen from outside", beat: 2 * time.Second, record: []recordMod{func(r *record.Lock) { r.PID = 7 }},
			machine: []machineMod{func(m *proctest.Machine) { m.Procs[0].NSpid, m.Procs[0].PIDNS = []int{4242, 7}, 9 }},
			want:    want{verdict.Live, "", verdict.Event, 0}, says: "pid 4242 (7 in its own namespace)",
		},
		{
			what: "recorded in another pid namespace", beat: 2 * time.Second,
			record:  []recordMod{dead, func(r *record.Lock) { r.Ours.PIDNS = 77 }},
			machine: []machineMod{func(m *proctest.Machine) { m.Initial = false }},
			want:    want{verdict.Unknown, "", verdict.At, 0}, at: 73 * time.Second,
		},
		{what: "killed", beat: 2 * time.Second, record: []recordMod{dead}, want: want{verdict.Dead, "gone", verdict.Now, 0}},
		{
			what: "pid 0", beat: 2 * time.Second, record: []recordMod{func(r *record.Lock) { r.PID = 0 }},
			want: want{verdict.Dead, "gone", verdict.Now, 0},
		},
		{
			what: "host unknown", beat: 2 * time.Second, record: []recordMod{legacy, dead, host("unknown-host")},
			want: want{verdict.Unknown, "", verdict.At, 0}, at: 73 * time.Second,
		},
		{what: "another machine", beat: 5 * time.Second, record: []recordMod{remote}, want: want{verdict.Remote, "", verdict.At, 0}, at: 70 * time.Second},
		{
			what: "another machine's clock is ahead", beat: -time.Hour, record: []recordMod{remote},
			want: want{verdict.Remote, "", verdict.At, verdict.Clock}, at: 75 * time.Second,
		},
		{
			what: "our clock was put back", beat: -time.Hour,
			want: want{verdict.Live, "", verdict.Event, verdict.Clock},
		},
	} {
		t.Run(tc.what, func(t *testing.T) {
			path := putLock(t, t.TempDir(), "inspect/writer.lease", lockRecord(tc.beat, tc.record...))
			info := (&Locker{Table: machine(tc.machine...)}).Inspect(path)
			expect(t, info.Verdict, tc.want)
			if tc.want.when == verdict.At {
				about(t, "claimable", info.Verdict.Claimable.At, tc.at)
			}
			if !strings.Contains(info.Verdict.Sentence, tc.says) {
				t.Errorf("the sentence does not say %q: %s", tc.says, info.Verdict.Sentence)
			}
			if stuck := tc.want.state == verdict.Stopped; info.Verdict.Stuck != stuck {
				t.Errorf("stuck = %v", info.Verdict.Stuck)
			}
			if data, err := os.ReadFile(path); err != nil || !bytes.Equal(info.Raw, data) || info.Path != path {
				t.Errorf("raw = %q of %q, %v", info.Raw, info.Path, err)
			}
		})
	}
}

func TestTokenBesideALock(t *testing.T) {
	token := func(mod ...func(*record.Lock)) []byte { return lockRecord(0, mod...).Encode() }
	for _, tc := range []struct {
		what  string
		lock  *record.Lock
		token []byte
		age   time.Duration
		want  want
		state verdict.State
		says  string
	}{
		{
			what: "crash in reclaim", lock: lockRecord(time.Minute, dead), token: token(dead),
			want: want{verdict.Dead, "gone", verdict.Now, 0}, state: verdict.Dead,
		},
		{
			what: "somebody is at it", lock: lockRecord(time.Minute, dead), token: token(),
			want: want{verdict.Dead, "gone", verdict.Blocked, verdict.IsBlocked}, state: verdict.Alive, says: "token alive of pid 4242",
		},
		{
			what: "malformed", lock: lockRecord(time.Minute, dead), token: []byte("{"), age: 30 * time.Second,
			want: want{verdict.Dead, "gone", verdict.Blocked, verdict.IsBlocked}, state: verdict.Malformed, says: "30s more",
		},
		{
			what: "malformed for over a minute", lock: lockRecord(time.Minute, dead), token: []byte("{"), age: 61 * time.Second,
			want: want{verdict.Dead, "gone", verdict.Now, 0}, state: verdict.Malformed,
		},
		{
			what: "another host's", lock: lockRecord(76*time.Second, remote), token: token(remote),
			want: want{verdict.Expired, "", verdict.Blocked, verdict.IsBlocked}, state: verdict.Unknown, says: "blocks for ever",
		},
		{
			what: "of the container that is gone", lock: lockRecord(76*time.Second, func(r *record.Lock) { r.Hostname, r.PID = "0a1b", 7 }),
			token: token(func(r *record.Lock) { r.Hostname, r.PID = "0a1b", 7 }),
			want:  want{verdict.Expired, "", verdict.Blocked, verdict.IsBlocked}, state: verdict.Unknown,
		},
		{
			what: "of a lock that is held", lock: lockRecord(time.Second), token: token(dead),
			want: want{verdict.Live, "", verdict.Event, 0}, state: verdict.Dead,
		},
		{
			what: "of a lock that is gone", token: token(dead),
			want: want{verdict.Free, "", verdict.Now, 0}, state: verdict.Dead,
		},
	} {
		t.Run(tc.what, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "cache.lock")
			if tc.lock != nil {
				putLock(t, dir, "cache.lock", tc.lock)
			}
			tokenPath := put(t, filepath.Join(dir, ".cache.lock.reclaim"), tc.token, tc.age)
			l := &Locker{Table: machine()}
			info := l.Inspect(path)
			expect(t, info.Verdict, tc.want)
			if info.Token == nil || info.Token.State != tc.state || info.Token.Path != tokenPath || info.Facts.Token == nil {
				t.Fatalf("token = %+v", info.Token)
			}
			if !strings.Contains(info.Verdict.Sentence, tc.says) {
				t.Errorf("the sentence does not say %q: %s", tc.says, info.Verdict.Sentence)
			}
			alone := l.InspectToken(tokenPath)
			if alone.Token != *info.Token || alone.Verdict.State != tc.state || !bytes.Equal(alone.Raw, tc.token) {
				t.Errorf("looked at alone: %+v; beside its lock: %+v", alone.Token, *info.Token)
			}
		})
	}
}

func TestNothingThere(t *testing.T) {
	dir := t.TempDir()
	l := &Locker{}
	for _, path := range []string{filepath.Join(dir, "cache.lock"), filepath.Join(dir, "no", "directory", "cache.lock")} {
		info := l.Inspect(path)
		expect(t, info.Verdict, want{verdict.Free, "", verdict.Now, 0})
		if !info.Facts.Missing || info.Token != nil || info.Raw != nil || info.Facts.Token != nil {
			t.Errorf("info = %+v", info)
		}
	}
	if info := l.InspectToken(filepath.Join(dir, ".cache.lock.reclaim")); !info.Facts.Missing || info.Facts.Blocks(time.Now()) {
		t.Errorf("token = %+v", info)
	}
	if info := l.InspectTemp(filepath.Join(dir, ".cache.lock.tmp.1.2.3")); !info.Facts.Missing {
		t.Errorf("temp = %+v", info)
	}
}

func TestDirectoryThatCannotBeLookedAtIsNotFree(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "file"), nil, 0)
	for path, detail := range map[string]string{
		filepath.Join(dir, "file", "cache.lock"):                 syscall.ENOTDIR.Error(),
		filepath.Join(dir, strings.Repeat("n", 300)+".lock"):     syscall.ENAMETOOLONG.Error(),
		filepath.Join(dir, "nul\x00.lock"):                       syscall.EINVAL.Error(),
		filepath.Join(dir, strings.Repeat("d/", 3000), "x.lock"): syscall.ENAMETOOLONG.Error(),
	} {
		info := (&Locker{}).Inspect(path)
		expect(t, info.Verdict, want{verdict.Unreadable, "denied", verdict.Blocked, verdict.IsBlocked})
		if p := info.Facts.Problem; p == nil || !strings.Contains(p.Detail, detail) {
			t.Errorf("%.60q: problem %v, want %q in it", path, p, detail)
		}
		if info.Token != nil {
			t.Errorf("%.60q: a token that nobody saw: %+v", path, info.Token)
		}
	}
}

func TestLongNameIsALockLikeAnyOther(t *testing.T) {
	// The name of its token would be longer than any file's name can be.
	path := putLock(t, t.TempDir(), strings.Repeat("n", 245)+".lock", lockRecord(time.Minute, dead))
	info := (&Locker{Table: machine()}).Inspect(path)
	expect(t, info.Verdict, want{verdict.Dead, "gone", verdict.Now, 0})
	if info.Token != nil {
		t.Errorf("token = %+v", info.Token)
	}
}

func TestUnreadableLock(t *testing.T) {
	whole := lockRecord(time.Second).Encode()
	for _, tc := range []struct {
		what string
		data []byte
		age  time.Duration
		want want
		torn bool
	}{
		{"empty after a power cut", nil, 5 * time.Second, want{verdict.Unreadable, "malformed", verdict.At, 0}, true},
		{"empty for over 15 s", nil, 16 * time.Second, want{verdict.Unreadable, "malformed", verdict.Now, 0}, true},
		{"half a record", whole[:40], 5 * time.Second, want{verdict.Unreadable, "malformed", verdict.At, 0}, true},
		{"half a record for over 15 s", whole[:40], 16 * time.Second, want{verdict.Unreadable, "malformed", verdict.Now, 0}, true},
		{"all NUL", make([]byte, 200), 16 * time.Second, want{verdict.Unreadable, "malformed", verdict.Now, 0}, true},
		{
			"half of a Cargo.lock", []byte("# This file is automatically @gen"), time.Hour,
			want{verdict.Unreadable, "malformed", verdict.Blocked, verdict.IsBlocked},
			false,
		},
		{
			"padded with NUL", append(bytes.Clone(whole), 0, 0), time.Hour,
			want{verdict.Unreadable, "malformed", verdict.Blocked, verdict.IsBlocked},
			false,
		},
		{
			"too large", make([]byte, record.MaxSize+1), time.Hour,
			want{verdict.Unreadable, "too-large", verdict.Blocked, verdict.IsBlocked},
			false,
		},
	} {
		t.Run(tc.what, func(t *testing.T) {
			path := put(t, filepath.Join(t.TempDir(), "cache.lock"), tc.data, tc.age)
			info := (&Locker{Table: machine()}).Inspect(path)
			expect(t, info.Verdict, tc.want)
			if info.Facts.Problem == nil || info.Facts.Problem.Torn != tc.torn {
				t.Fatalf("problem = %+v", info.Facts.Problem)
			}
			if tc.want.cause == "malformed" && !bytes.Equal(info.Raw, tc.data) {
				t.Errorf("raw = %q", info.Raw)
			}
			if tc.want.when == verdict.At {
				about(t, "claimable", info.Verdict.Claimable.At, 10*time.Second)
			}
		})
	}
}

func TestTornLockThatIsBeingWrittenIsHeld(t *testing.T) {
	path := put(t, filepath.Join(t.TempDir(), "cache.lock"), nil, time.Hour)
	file, err := record.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	table := machine(func(m *proctest.Machine) {
		m.Procs[0].Writes = []proctest.File{{Dev: file.Stat.Dev, Ino: file.Stat.Ino}}
		m.Procs[1].Writes = []proctest.File{{Dev: file.Stat.Dev, Ino: file.Stat.Ino + 1}}
	})
	info := (&Locker{Table: table}).Inspect(path)
	expect(t, info.Verdict, want{verdict.Unreadable, "malformed", verdict.Blocked, verdict.IsBlocked})
	if len(info.Facts.Writers) != 1 || info.Facts.Writers[0] != 4242 {
		t.Errorf("writers = %v", info.Facts.Writers)
	}
}

func TestTemps(t *testing.T) {
	lease := record.Lease{
		InstanceID: "a", OwnerBootID: "o", BlockID: "b", PID: 4242, Hostname: "here",
		AcquiredAtMS: time.Now().UnixMilli(), RenewedAtMS: time.Now().UnixMilli(), PIDStartS: uint64(time.Now().Add(-time.Hour).Unix()) + 7,
	}
	gone := lease
	gone.PID = 999_999
	for _, tc := range []struct {
		what, name string
		data       []byte
		state      verdict.State
		pid        uint32
	}{
		{"litter", ".cache.lock.tmp.999999.1796046969596595633.0", lockRecord(time.Hour, dead).Encode(), verdict.Litter, 999_999},
		{"waiting", ".cache.lock.tmp.4242.1.0", lockRecord(0).Encode(), verdict.InUse, 4242},
		{"record and name differ", ".cache.lock.tmp.999999.1.0", lockRecord(0).Encode(), verdict.InUse, 4242},
		{"another machine's", ".cache.lock.tmp.999999.1.0", lockRecord(time.Hour, remote).Encode(), verdict.InUse, 4242},
		{"empty, its process is gone", ".cache.lock.tmp.999999.1.0", nil, verdict.Litter, 999_999},
		{"empty, its process runs", ".cache.lock.tmp.4242.1.0", nil, verdict.InUse, 4242},
		{"empty, of no process", ".cache.lock.tmp.0.1.0", nil, verdict.InUse, 0},
		{"empty, of no pid", ".cache.lock.tmp.x", nil, verdict.InUse, 0},
		{"of a lease", ".registry-tmp-Qw3xYz.json", lease.Encode(), verdict.InUse, 4242},
		{"of a lease of a process that is gone", ".registry-tmp-Qw3xYz.json", gone.Encode(), verdict.Litter, 999_999},
		{"of a lease, torn", ".registry-tmp-Qw3xYz.json", []byte("{"), verdict.InUse, 0},
	} {
		t.Run(tc.what, func(t *testing.T) {
			path := put(t, filepath.Join(t.TempDir(), tc.name), tc.data, 0)
			info := (&Locker{Table: machine()}).InspectTemp(path)
			if info.Verdict.State != tc.state || info.Facts.PID != tc.pid {
				t.Errorf("got %v of pid %d: %s", info.Verdict.State, info.Facts.PID, info.Verdict.Sentence)
			}
			if !bytes.Equal(info.Raw, tc.data) {
				t.Errorf("raw = %q", info.Raw)
			}
		})
	}
}

func TestTempOfALeaseIsJudgedByItsTicksToo(t *testing.T) {
	lease := record.Lease{
		InstanceID: "a", OwnerBootID: "o", BlockID: "b", PID: 4242, Hostname: "here",
		AcquiredAtMS: time.Now().UnixMilli(), RenewedAtMS: time.Now().UnixMilli(),
		Ours: record.Ours{KernelBootID: "boot", TimeNS: 2, PIDNS: 1, PIDStartTicks: 776},
	}
	path := put(t, filepath.Join(t.TempDir(), ".registry-tmp-Qw3xYz.json"), lease.Encode(), 0)
	if info := (&Locker{Table: machine()}).InspectTemp(path); info.Verdict.State != verdict.Litter || info.Verdict.Cause != "recycled" {
		t.Errorf("got %+v", info.Verdict)
	}
}

func TestBeatByTheBootTimeClock(t *testing.T) {
	const uptime = 3600_000 // ms
	ours := func(beat int64, mod ...func(*record.Lock)) *record.Lock {
		r := lockRecord(2*time.Second, func(r *record.Lock) {
			r.Ours = record.Ours{BeatBootMS: beat, TimeNS: 2, PIDNS: 1}
		})
		for _, f := range mod {
			f(r)
		}
		return r
	}
	for _, tc := range []struct {
		what   string
		r      *record.Lock
		booted bool
		age    time.Duration
	}{
		{"counts", ours(uptime - 20_000), true, 20 * time.Second},
		{"is ahead by less than the slack", ours(uptime + 1500), true, 0},
		{"is ahead by more", ours(uptime + 2500), false, 2 * time.Second},
		{"overflows", ours(1<<63 - 1), false, 2 * time.Second},
		{"is absent", ours(0), false, 2 * time.Second},
		{"is of another boot", ours(uptime-20_000, func(r *record.Lock) { r.BootID = new("before") }), false, 2 * time.Second},
		{"is of no boot", ours(uptime-20_000, func(r *record.Lock) { r.BootID = nil }), false, 2 * time.Second},
		{"is of another time namespace", ours(uptime-20_000, func(r *record.Lock) { r.Ours.TimeNS = 3 }), false, 2 * time.Second},
		{"is of no time namespace", ours(uptime-20_000, func(r *record.Lock) { r.Ours.TimeNS = 0 }), false, 2 * time.Second},
	} {
		t.Run(tc.what, func(t *testing.T) {
			path := putLock(t, t.TempDir(), "cache.lock", tc.r)
			l := &Locker{Table: machine(), sinceBoot: func() time.Duration { return uptime * time.Millisecond }}
			f := l.Inspect(path).Facts
			if f.Booted != tc.booted {
				t.Errorf("booted = %v", f.Booted)
			}
			if age := f.Look.Sub(f.Beat); (age - tc.age).Abs() > time.Second {
				t.Errorf("age = %v, want %v", age, tc.age)
			}
		})
	}
	// Where our own boot is not known, nothing is of it.
	path := putLock(t, t.TempDir(), "cache.lock", ours(uptime, func(r *record.Lock) { r.BootID = new("") }))
	if f := (&Locker{Table: machine(func(m *proctest.Machine) { m.BootID = "" })}).Inspect(path).Facts; f.Booted {
		t.Error("a beat of an unknown boot counts")
	}
}

func TestOwnLockIsMine(t *testing.T) {
	table := machine(func(m *proctest.Machine) { m.PID = 4242 })
	path := putLock(t, t.TempDir(), "cache.lock", lockRecord(time.Second))
	info := (&Locker{Table: table}).Inspect(path)
	expect(t, info.Verdict, want{verdict.Live, "", verdict.Event, verdict.Mine})
	if f := info.Facts; !f.Self || f.Host != "here" || f.Boot != "boot" {
		t.Errorf("facts = %+v", f)
	}
}

func TestWhatReadingSaysOtherwiseIsDenied(t *testing.T) {
	if e := problem("p", errors.New("odd")); e.Problem != record.Denied || e.Detail != "odd" || e.Path != "p" {
		t.Errorf("problem = %+v", e)
	}
}

func TestWhatIsRewrittenFasterThanItCanBeReadIsNotAbandoned(t *testing.T) {
	// Reading gives up without the file's time then.
	err := &record.Error{Op: "read", Path: "p", Problem: record.Malformed, Detail: "rewritten faster than it can be read"}
	l := &Locker{Table: machine()}
	for range 2 {
		f := &verdict.TokenFacts{Seen: verdict.Seen{Path: "p", Look: time.Now()}}
		if rec, raw := l.look(l.table()).note(&f.Seen, record.File{}, record.Lock{}, err); rec != nil || raw != nil {
			t.Errorf("record %v, raw %q", rec, raw)
		}
		if !f.Blocks(f.Look.Add(59*time.Second)) || f.Blocks(f.Look.Add(61*time.Second)) || !f.Still.IsZero() {
			t.Errorf("token of %v, still %v: %s", f.File.ModTime, f.Still, f.Judge(f.Look).Sentence)
		}
	}
}

package tui

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/fslock"
	"holdfast/fslock/audit"
	"holdfast/fslock/proc"
	"holdfast/fslock/verdict"
	"holdfast/watch"
)

// stock is a real storage of locks under a screen.
type stock struct {
	t    *testing.T
	dir  string // of the one lock
	lock string // its path
	w    *watch.Watcher
	s    *Screen
}

func stockOf(t *testing.T) *stock {
	t.Helper()
	root := t.TempDir()
	k := &stock{t: t, dir: filepath.Join(root, "index", "8eb3d10c88aa02f1")}
	if err := os.MkdirAll(k.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	k.lock = filepath.Join(k.dir, "cache.lock")
	k.w = &watch.Watcher{Roots: []watch.Root{{Path: root}}}
	k.s = screenFor()
	k.s.Watch, k.s.Locker, k.s.Stores = polling(k.w, time.Second), k.w.Locker(), k.w.Store
	k.s.Audit = &audit.Log{Path: filepath.Join(t.TempDir(), "audit.jsonl")}
	return k
}

// gonePID is the pid of a process that has ended.
func gonePID(t *testing.T) int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// put writes a lock's record: of a process of this machine, or of another machine's if host is not empty.
func (k *stock) put(path string, pid int, host, nonce string, age time.Duration) {
	k.t.Helper()
	self, beat := proc.Local().Self(), time.Now().Add(-age)
	boot := self.BootID
	if host == "" {
		host = self.Host
	} else {
		boot = "another boot"
	}
	raw := fmt.Sprintf(`{"pid":%d,"hostname":%q,"process_start_time":1,"boot_id":%q,"created_at_ms":%d,"heartbeat_at_ms":%d,"writer_epoch":%q,"pid_ns":%d}`+"\n",
		pid, host, boot, beat.UnixMilli(), beat.UnixMilli(), nonce, self.PIDNS)
	if err := os.WriteFile(path, []byte(raw), 0o600); err != nil {
		k.t.Fatal(err)
	}
	if err := os.Chtimes(path, beat, beat); err != nil {
		k.t.Fatal(err)
	}
}

func (k *stock) putDead() { k.put(k.lock, gonePID(k.t), "", "writer-dead", time.Minute) }

func (k *stock) token() string { return filepath.Join(k.dir, ".cache.lock.reclaim") }

// sit opens the screen on what is there now.
func (k *stock) sit() *desk {
	k.t.Helper()
	d := sit(k.t, k.s, 140, 40)
	d.see(look(k.t, k.w))
	return d
}

// plans presses the key of an action and waits until its plan listens.
func (d *desk) plans(key string) {
	d.t.Helper()
	did := d.press(key)
	if d.dialog == nil {
		d.t.Fatalf("%s opens no plan: %s", key, d.note.text)
	}
	d.finish(did)
	d.later(dialogDeaf)
}

// refuses presses the key of an action, which must open no plan but say why.
func (d *desk) refuses(key, why string) {
	d.t.Helper()
	did := d.press(key)
	if d.dialog != nil || len(did) != 0 {
		d.t.Fatalf("%s opens a plan: %s", key, d.dialog.title)
	}
	d.wants(why)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// logged is the last entry of the audit log about a file.
func (k *stock) logged(path string) audit.Entry {
	k.t.Helper()
	var e audit.Entry
	for next, err := range k.s.Audit.About(path) {
		if err != nil {
			k.t.Fatal(err)
		}
		e = next
	}
	if e.Action == "" {
		k.t.Fatalf("the audit log says nothing of %s", path)
	}
	return e
}

func TestAcquireAndReleaseOnDisk(t *testing.T) {
	k := stockOf(t)
	k.putDead()
	d := k.sit()
	d.plans("A")
	for _, part := range []string{
		"acquire index/8eb3d10c88aa02f1/cache.lock?", "writer-dead", "beats every 5s until R, quit or a signal", "holdfast acquire " + k.lock, "y acquire and hold",
	} {
		d.wants(part)
	}
	d.finish(d.press("y"))
	d.wants("Acquired index/8eb3d10c88aa02f1/cache.lock.")
	now := d.holds.view().list
	if len(now) != 1 || now[0].nonce == "" {
		t.Fatalf("held: %+v", now)
	}
	if info := k.w.Locker().Inspect(k.lock); info.Verdict.State != verdict.Live || info.Facts.Record.WriterEpoch != now[0].nonce {
		t.Errorf("the lock is %v", info.Verdict.State)
	}
	d.see(look(t, k.w))
	d.wants("1 held")
	d.wants("This screen beats for it")
	d.refuses("A", "holds index/8eb3d10c88aa02f1/cache.lock already. R releases it.")
	d.refuses("B", "holds index/8eb3d10c88aa02f1/cache.lock itself. R releases it.")
	if got := d.press("ctrl+z"); len(got) != 0 {
		t.Errorf("^z gave %+v", got)
	}
	d.wants("cannot keep what it holds (1 lock)")
	d.press("q")
	d.wants("You hold 1 lock.  enter release and quit   esc stay")
	d.press("esc")

	d.plans("R")
	d.wants(now[0].nonce)
	d.finish(d.press("y"))
	d.wants("Released index/8eb3d10c88aa02f1/cache.lock.")
	if exists(k.lock) || len(d.holds.view().list) != 0 {
		t.Error("the lock is still there")
	}
}

func TestLockIsReleasedWhenTheScreenEnds(t *testing.T) {
	k := stockOf(t)
	k.putDead()
	d := k.sit()
	d.plans("A")
	d.finish(d.press("y"))
	notes, failed := d.holds.close()
	if failed || len(notes) != 1 || notes[0] != "released lock index/8eb3d10c88aa02f1/cache.lock" {
		t.Errorf("%v, failed %v", notes, failed)
	}
	if exists(k.lock) {
		t.Error("the lock is still there")
	}
}

func TestLostLockIsToldAsSoonAsItIsSeen(t *testing.T) {
	for name, lose := range map[string]func(*stock){
		"Lost lock index/8eb3d10c88aa02f1/cache.lock: its file is gone.": func(k *stock) {
			if err := os.Remove(k.lock); err != nil {
				t.Fatal(err)
			}
		},
		"Lost lock index/8eb3d10c88aa02f1/cache.lock to pid 77 on web02.": func(k *stock) {
			if err := os.Remove(k.lock); err != nil {
				t.Fatal(err)
			}
			k.put(k.lock, 77, "web02", "theirs", 0)
		},
	} {
		k := stockOf(t)
		k.putDead()
		d := k.sit()
		d.plans("A")
		d.finish(d.press("y"))
		d.see(look(t, k.w))
		lose(k)
		d.did = nil
		d.see(look(t, k.w))
		d.finish(d.did)
		d.hears()
		d.wants("does not hold index/8eb3d10c88aa02f1/cache.lock any more")
		d.wants(oneSpaced(name))
		d.holds.close()
	}
}

func TestLostLockIsToldByItsHeartbeat(t *testing.T) {
	k := stockOf(t)
	k.putDead()
	d := k.sit()
	rung := make(chan struct{}, 10)
	d.holds.ring = func() { rung <- struct{}{} }
	d.plans("A")
	d.finish(d.press("y"))
	<-rung
	if err := os.Remove(k.lock); err != nil {
		t.Fatal(err)
	}
	select {
	case <-rung:
	case <-time.After(time.Minute):
		t.Fatal("the loss is never told")
	}
	d.hears()
	d.wants("Lost lock")
	d.holds.close()
}

func TestAcquireIsComparedAgainWhenItRuns(t *testing.T) {
	k := stockOf(t)
	k.putDead()
	d := k.sit()
	d.plans("A")
	agreed := d.press("y")
	k.put(k.lock, gonePID(t), "", "another", time.Minute)
	d.finish(agreed)
	d.wants("Not acquired: index/8eb3d10c88aa02f1/cache.lock: changed since the plan was made; nothing was done")
	if len(d.holds.view().list) != 0 {
		t.Error("it was acquired")
	}
}

func TestBreakOfWhatAnyContenderTakes(t *testing.T) {
	k := stockOf(t)
	k.putDead()
	d := k.sit()
	d.plans("B")
	for _, part := range []string{
		"break index/8eb3d10c88aa02f1/cache.lock?", "nobody: its holder is gone", "writer-dead", "removed " + k.lock, k.s.Audit.Path,
		"holdfast break " + k.lock + " --expect writer-dead --yes", "--undo` of the same path", "y break it",
	} {
		d.wants(part)
	}
	d.finish(d.press("y"))
	d.wants("Broke index/8eb3d10c88aa02f1/cache.lock. `holdfast break")
	if exists(k.lock) {
		t.Error("it is still there")
	}
	if e := k.logged(k.lock); e.Action != audit.ActionBreak || e.Nonce != "writer-dead" {
		t.Errorf("the log says %+v", e)
	}
	d.press("j")
	if d.note.text != "" {
		t.Error("a key does not clear the result")
	}
}

func TestBreakOfALivingHolderWantsItsNameAndAReason(t *testing.T) {
	k := stockOf(t)
	other := &fslock.Locker{}
	held, err := other.TryAcquire(k.lock)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release() //nolint:errcheck // it is lost by then
	d := k.sit()
	d.plans("B")
	d.wants("goes on writing until it notices at its next heartbeat")
	d.wants("--expect " + held.WriterEpoch() + " --force --reason TEXT")
	d.wants("type cache.lock to confirm")
	if got := d.press("y", "enter"); len(got) != 0 || d.dialog == nil {
		t.Fatal("y confirmed it")
	}
	d.press("esc")
	d.plans("B")
	d.types("cache.lock")
	d.wants("a reason is wanted")
	d.press("enter")
	d.types("it hung")
	d.wants("--reason 'it hung'")
	d.wants("enter break it")
	d.finish(d.press("enter"))
	d.wants("Broke index/8eb3d10c88aa02f1/cache.lock.")
	if exists(k.lock) {
		t.Error("it is still there")
	}
	if e := k.logged(k.lock); e.Reason != "it hung" || e.Nonce != held.WriterEpoch() {
		t.Errorf("the log says %+v", e)
	}
}

func TestBreakOfALease(t *testing.T) {
	k := stockOf(t)
	w, store := watcherOf(t, "agent")
	k.w, k.s.Stores, k.s.Locker = w, w.Store, w.Locker()
	if _, err := store.Claim(t.Context(), "agent", k.s.Claimant); err != nil {
		t.Fatal(err)
	}
	d := k.sit()
	d.plans("B")
	d.wants("this ends the agent agent within 5s")
	d.wants("is a holdfast that claimed it and holds 1 lease")
	d.types("agent")
	d.press("tab")
	d.types("stuck")
	d.finish(d.press("enter"))
	d.wants("Broke agent.")
	if info, _ := store.Inspect("agent"); info.Verdict.State != verdict.Free || info.Epoch != 7 {
		t.Errorf("the lease is %v, epoch %d", info.Verdict.State, info.Epoch)
	}
}

func TestTokenThatBlocksIsRemovedFirst(t *testing.T) {
	k := stockOf(t)
	k.putDead()
	k.put(k.token(), 377, "old-host", "reclaim-377-1", 3*time.Hour)
	d := k.sit()
	d.wants("blocked by a token of old-host. B shows how.")
	d.wants("B remove that token (plan first)")
	d.refuses("A", "blocked by a token of old-host. B removes that token.")
	d.plans("B")
	d.wants("remove the token that blocks index/8eb3d10c88aa02f1/cache.lock?")
	d.wants("removed " + k.token())
	d.wants("type .cache.lock.reclaim to confirm")
	d.types(".cache.lock.reclaim")
	d.press("tab")
	d.types("old-host was scrapped")
	d.finish(d.press("enter"))
	d.wants("Removed the token")
	if exists(k.token()) || !exists(k.lock) {
		t.Error("something else was removed")
	}
	if e := k.logged(k.token()); e.Action != audit.ActionToken || e.Reason != "old-host was scrapped" {
		t.Errorf("the log says %+v", e)
	}
	d.see(look(t, k.w))
	d.wants("Nothing is stuck.")
}

func TestBreakIsBoundToWhatThePlanShowed(t *testing.T) {
	k := stockOf(t)
	k.putDead()
	d := k.sit()
	d.plans("B")
	agreed := d.press("y")
	k.put(k.lock, gonePID(t), "", "another", time.Minute)
	d.finish(agreed)
	d.wants("Not broken: index/8eb3d10c88aa02f1/cache.lock: changed since the plan was made")
	if !exists(k.lock) {
		t.Error("another's lock was broken")
	}
}

func TestSweepOnDisk(t *testing.T) {
	k := stockOf(t)
	k.put(k.token(), gonePID(t), "", "reclaim-1-1", time.Hour)
	kept := filepath.Join(k.dir, ".other.lock.reclaim")
	k.put(kept, 377, "old-host", "reclaim-377-1", time.Hour)
	pid := gonePID(t)
	temp := filepath.Join(k.dir, fmt.Sprintf(".cache.lock.tmp.%d.5.1", pid))
	k.put(temp, pid, "", "writer-temp", time.Hour)

	d := k.sit()
	did := d.press("W")
	d.wants("planning…")
	d.later(dialogDeaf)
	if got := d.press("y"); len(got) != 0 {
		t.Error("a plan that is not there was confirmed")
	}
	d.finish(did)
	d.later(dialogDeaf)
	for _, part := range []string{"1 token to remove, 1 token to leave", "remove " + k.token(), "leave " + kept, "holdfast sweep " + k.w.Roots[0].Path + " --yes"} {
		d.wants(part)
	}
	d.finish(d.press("y"))
	d.wants("Swept: 1 removed.")
	if exists(k.token()) || !exists(kept) || !exists(temp) {
		t.Error("the wrong things were removed")
	}

	d.see(look(t, k.w))
	d.press("4")
	d.wants("litter 1/2")
	const sweeps = "next W sweep temps away (plan first)"
	if strings.Contains(d.screenText(), sweeps) {
		t.Error("W is named for a token that no sweep removes")
	}
	d.choose(temp)
	d.wants(sweeps)
	d.press("enter")
	d.wants(sweeps)
	d.press("z")
	d.plans("W")
	d.wants("1 temp to remove, 1 token to leave")
	d.wants("--temps --yes")
	d.finish(d.press("y"))
	if exists(temp) || !exists(kept) {
		t.Error("the wrong things were removed")
	}
	d.plans("W")
	d.wants("nothing to sweep; 1 token to leave")
	if got := d.press("y"); len(got) != 0 {
		t.Error("a plan of nothing was confirmed")
	}
}

func TestSweepPlanDiesWithWhatItNames(t *testing.T) {
	k := stockOf(t)
	k.put(k.token(), gonePID(t), "", "reclaim-1-1", time.Hour)
	d := k.sit()
	d.plans("W")
	d.see(look(t, k.w))
	if d.dialog.changed != "" {
		t.Fatalf("nothing changed: %s", d.dialog.changed)
	}
	k.put(k.token(), 377, "old-host", "reclaim-377-1", 0)
	d.see(look(t, k.w))
	d.wants("Since this plan was made, .cache.lock.reclaim changed")
	if got := d.press("y"); len(got) != 0 {
		t.Error("y acts")
	}
}

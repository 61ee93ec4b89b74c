package cli_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/fslock"
	"holdfast/tui/cli"
)

// watches starts `holdfast watch` with args.
func watches(t *testing.T, args ...string) *command {
	t.Helper()
	return start(t, exec.Command("holdfast", append([]string{"watch"}, args...)...))
}

// says wants the next line of standard output to be all of what the pattern describes.
func (c *command) says(pattern string) {
	c.t.Helper()
	select {
	case line, more := <-c.lines:
		if ok, err := regexp.MatchString("^(?:"+pattern+")$", line); err != nil || !ok {
			c.t.Errorf("%v\nit says %q\nwant    %q %v", c.Args, line, pattern, err)
		}
		if !more {
			c.t.Fatalf("it ends: %s", c.rest(c.complaints))
		}
	case <-time.After(patience):
		c.t.Fatalf("%v does not say %q", c.Args, pattern)
	}
}

// Every event, in every form, one after the other.
func TestWatchTellsEachEvent(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	root := filepath.Join(home, "locks")
	path := filepath.Join(root, "a.lock")
	var all [3]*command
	for i, form := range []string{"--ascii", "--plain", "--json"} {
		cmd := exec.Command("holdfast", "watch", "--all", form, root)
		cmd.Env = append(os.Environ(), "HOME="+home, "LC_ALL=C.UTF-8")
		all[i] = start(t, cmd)
	}
	columns, plain, program := all[0], all[1], all[2]
	quoted, clock := regexp.QuoteMeta(root), `\d\d:\d\d:\d\d `
	object := func(rest string) string { return `\{"schema":1,"time_ms":\d{13},"event":` + rest + `\}` }
	onLock := func(event, rest string) string {
		return object(`"` + event + `","kind":"lock","root":"` + quoted + `","path":"` + regexp.QuoteMeta(path) + `"` + rest)
	}
	holder := func(writer string) string {
		return `,"holder":\{"pid":77,"host":"far-host","writer_epoch":"` + writer + `","acquired_at_ms":\d{13},"renewed_at_ms":\d{13},` +
			`"process":\{"alive":"unknown"\}\}`
	}
	const (
		held = `Held on far-host; its process cannot be checked from here\. Heartbeat \ds ago; the next contender may take it in 7\ds if it stays still\.`
		over = `No heartbeat from far-host for 8\ds \(limit 75s\)\. The next contender takes it\.`
	)

	const missing = `This root is missing: there is nothing at this path\. It is waited for\.`
	columns.says(`watching 0 entries in ~/locks \(missing\)`)
	columns.says(`1 place could not be looked at: ` + quoted + `: it is not there\.`)
	columns.says(clock + `watch    -     ~/locks +` + missing)
	plain.says(`Watching 0 entries in ~/locks, missing\. 1 place could not be looked at: ` + quoted + `: it is not there\.`)
	plain.says(clock + `~/locks: ` + missing)
	program.says(`{"schema":1,"event":"ready","entries":0}`)
	program.says(object(`"watch","root":"` + quoted + `","path":"` + quoted + `","sentence":"` + missing + `"`))

	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	const there = `This root is there now \(plain\), watched by [a-z]+[^"]*\.`
	columns.says(clock + `watch    -     ~/locks +` + there)
	plain.says(clock + `~/locks: ` + there)
	program.says(object(`"watch","root":"` + quoted + `","path":"` + quoted + `","sentence":"` + there + `"`))

	lock(t, path, "w", 77, "far-host", time.Second)
	columns.says(clock + `appeared lock  a\.lock @ REMOTE          ` + held)
	plain.says(clock + `a\.lock, a lock: appeared, remote\. ` + held)
	program.says(onLock("appeared", `,"to":"remote","sentence":"`+held+`"`+holder("w")))

	beat(t, path, "w", 0)
	columns.says(clock + `renewed  lock  a\.lock @ REMOTE          ` + held)
	plain.says(clock + `a\.lock, a lock: renewed by pid 77 on far-host\. ` + held)
	program.says(onLock("renewed", `,"from":"remote","to":"remote","sentence":"`+held+`"`+holder("w")))

	beat(t, path, "w", 80*time.Second)
	columns.says(clock + `changed  lock  a\.lock REMOTE -> ! EXPIRED ` + over)
	plain.says(clock + `a\.lock, a lock: changed from remote to expired\. ` + over)
	program.says(onLock("changed", `,"from":"remote","to":"expired","sentence":"`+over+`"`+holder("w")))

	beat(t, path, "v", 0)
	columns.says(clock + `taken    lock  a\.lock EXPIRED -> @ REMOTE ` + held)
	plain.says(clock + `a\.lock, a lock: taken by pid 77 on far-host\. ` + held)
	program.says(onLock("taken", `,"from":"expired","to":"remote","sentence":"`+held+`"`+holder("v")))

	// A token beside it changes not its state, but what comes of it.
	lock(t, filepath.Join(root, ".a.lock.reclaim"), "r", 78, "far-host", time.Second)
	for _, c := range all {
		c.hears(c.lines, ".a.lock.reclaim")
	}

	// One after the other: a lock that goes first is free and blocked until its token goes, if somebody looks just then.
	if err := os.Remove(filepath.Join(root, ".a.lock.reclaim")); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		c.hears(c.lines, ".a.lock.reclaim")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	const gone = `Its file is gone: released, or taken away\.`
	for _, c := range all {
		last := c.hears(c.lines, "released, or taken away")
		want := map[*command]string{
			columns: clock + `gone     lock  a\.lock +was REMOTE        ` + gone + ` pid 77 on far-host had it\.`,
			plain:   clock + `a\.lock, a lock: gone\. ` + gone + ` pid 77 on far-host had it\.`,
			program: onLock("gone", `,"from":"remote","sentence":"`+gone+`"`+strings.Replace(holder("v"), `,"process":\{"alive":"unknown"\}`, "", 1)),
		}[c]
		if ok, err := regexp.MatchString("^(?:"+want+")$", last); err != nil || !ok {
			t.Errorf("%v\nit says %q\nwant    %q %v", c.Args, last, want, err)
		}
	}
}

// beat replaces a lock of another machine in one step, as its holder does.
func beat(t *testing.T, path, writer string, ago time.Duration) {
	t.Helper()
	temp := filepath.Join(t.TempDir(), "temp")
	lock(t, temp, writer, 77, "far-host", ago)
	if err := os.Rename(temp, path); err != nil {
		t.Fatal(err)
	}
}

// change is a line of `watch --json`, with all of its keys.
type change struct {
	Schema   int     `json:"schema"`
	TimeMS   *int64  `json:"time_ms"`
	Event    string  `json:"event"`
	Entries  *int    `json:"entries"`
	Kind     string  `json:"kind"`
	Root     string  `json:"root"`
	Path     string  `json:"path"`
	PathB64  string  `json:"path_b64"`
	ID       string  `json:"id"`
	From     *string `json:"from"`
	To       *string `json:"to"`
	Cause    string  `json:"cause"`
	Sentence string  `json:"sentence"`
	Holder   *struct {
		PID       int    `json:"pid"`
		SessionID string `json:"session_id"`
	} `json:"holder"`
}

func decode(t *testing.T, line string) (c change) {
	t.Helper()
	var keys map[string]json.RawMessage
	if err := json.Unmarshal([]byte(line), &keys); err != nil {
		t.Fatalf("%v: %q", err, line)
	}
	if err := json.Unmarshal([]byte(line), &c); err != nil || c.Schema != 1 {
		t.Fatalf("schema %d, %v: %q", c.Schema, err, line)
	}
	if c.Event == "ready" {
		if c.Entries == nil || len(keys) != 3 {
			t.Errorf("it begins with %q", line)
		}
		return c
	}
	delete(keys, "holder") // is as in ls
	d := json.NewDecoder(strings.NewReader(line))
	d.DisallowUnknownFields()
	rest := struct {
		change
		Holder json.RawMessage `json:"holder"`
	}{}
	if err := d.Decode(&rest); err != nil {
		t.Errorf("%v: %q", err, line)
	}
	of := c.Event != "watch"
	if c.TimeMS == nil || c.Path == "" || c.Entries != nil || (c.Kind != "") != of ||
		(c.From != nil) != (of && c.Event != "appeared") || (c.To != nil) != (of && c.Event != "gone") {
		t.Errorf("keys are missing, or do not apply: %q", line)
	}
	return c
}

// A holder dies without a word. Its lease is told to be dead, and who had it.
func TestWatchTellsOfAKilledHolder(t *testing.T) {
	t.Parallel()
	root, file := leases(t)
	w := watches(t, "--json", "--sessions", root)
	if c := decode(t, <-w.lines); c.Event != "ready" || *c.Entries != 0 {
		t.Errorf("it begins with %+v", c)
	}
	h := claim(t, root, "--session", "secret")
	// Its flock file and counter can be seen before its record is: then it is free at first.
	c := decode(t, w.hears(w.lines, `"to":"live"`))
	if c.Event != "appeared" && c.Event != "taken" || c.ID != "x" || c.Path != file || c.Holder.PID != h.Process.Pid || c.Holder.SessionID != "secret" {
		t.Errorf("of a claim it tells %+v", c)
	}
	if err := h.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = h.Wait()
	c = decode(t, <-w.lines)
	if c.Event != "changed" || *c.From != "live" || *c.To != "dead" || c.Cause != "gone" || c.Holder.PID != h.Process.Pid {
		t.Errorf("of its end it tells %+v", c)
	}
	again := claim(t, root)
	if c = decode(t, <-w.lines); c.Event != "taken" || *c.From != "dead" || *c.To != "live" || c.Holder.PID != again.Process.Pid {
		t.Errorf("of the next claim it tells %+v", c)
	}
	_ = again.Process.Kill()
	_ = again.Wait()
}

// What lives under 50 ms does not appear: neither it nor its end is told.
func TestWatchTellsNothingOfShortLocks(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	w := watches(t, "--json", "--all", root)
	w.hears(w.lines, `"ready"`)
	locker, long := &fslock.Locker{}, map[string]bool{}
	short := 0
	for i := 0; short < 60; i++ {
		if i == 600 {
			t.Skip("this machine is too slow to hold a lock for a short time")
		}
		path := filepath.Join(root, fmt.Sprintf("short-%d.lock", i))
		begin := time.Now()
		held, err := locker.TryAcquire(path)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond) // that is the case
		if err := held.Release(); err != nil {
			t.Fatal(err)
		}
		if time.Since(begin) < 45*time.Millisecond {
			short++
		} else {
			long[path] = true
		}
	}
	lock(t, filepath.Join(root, "last.lock"), "w", 77, "far-host", 0)
	for line := range w.lines {
		c := decode(t, line)
		if filepath.Base(c.Path) == "last.lock" {
			return
		}
		if !long[c.Path] {
			t.Errorf("it tells %s", line)
		}
	}
	t.Error("it ends")
}

// Names and records from disk are harmless, and each change is one line whatever is in them.
func TestWatchIsHarmless(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	var all []*command
	for _, args := range [][]string{{"--color", "always"}, {"--plain", "--color", "always"}, {"--json"}} {
		c := watches(t, append(args, root)...)
		all = append(all, c)
		if args[0] == "--color" {
			c.hears(c.lines, "watching 0 entries")
		}
		c.says("Nothing is stuck.|Watching .* Nothing is stuck.|{.*}")
	}
	path := filepath.Join(root, "a\x1b[2J\n\xff.lock")
	lock(t, path, "w", 77, strings.Repeat("far\x1b[2J", 500), time.Second)
	for _, c := range all {
		line := c.hears(c.lines, "appeared")
		coloured := strings.Replace(strings.Replace(line, "\x1b[36m@ REMOTE", "", 1), "\x1b[0m", "", 1)
		if (coloured != line) != (c == all[0]) || strings.ContainsRune(coloured, 0x1b) || !strings.Contains(line, "2J") {
			t.Errorf("%v: %q", c.Args, line)
		}
		if c != all[2] {
			if len(line) > 1000 {
				t.Errorf("%v: a line of %d bytes", c.Args, len(line))
			}
			continue
		}
		if raw, err := base64.StdEncoding.DecodeString(decode(t, line).PathB64); err != nil || string(raw) != path {
			t.Errorf("the path is %q, %v", raw, err)
		}
	}
}

// watchInto runs the verb within this process, with out as its standard output.
func watchInto(t *testing.T, out func(p []byte) (int, error), args ...string) (code int, complaint string) {
	t.Helper()
	var e bytes.Buffer
	env := cli.Env{Stdin: os.Stdin, Stdout: sink(out), Stderr: &e, Home: t.TempDir(), Getenv: func(string) string { return "" }}
	code = cli.Main(t.Context(), append([]string{"watch"}, args...), env)
	return code, e.String()
}

type sink func(p []byte) (int, error)

func (s sink) Write(p []byte) (int, error) { return s(p) }

func TestWatchEndsWithItsOutput(t *testing.T) {
	root := t.TempDir()
	for _, c := range []struct {
		err  error
		code int
		says string
	}{
		{&os.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE}, 0, ""},
		{syscall.ENOSPC, 1, "standard output: " + syscall.ENOSPC.Error()},
		{errors.New("no more"), 1, "standard output: no more"},
	} {
		for _, form := range []string{"--json", "--plain", "--ascii"} {
			for good := range 2 { // lines that it takes before
				if err := os.RemoveAll(filepath.Join(root, "x.lock")); err != nil {
					t.Fatal(err)
				}
				left := good
				code, complaint := watchInto(t, func(p []byte) (int, error) {
					if bytes.IndexByte(p, '\n') != len(p)-1 {
						t.Errorf("a write is no line: %q", p)
					}
					if left--; left < 0 {
						return 0, c.err
					}
					lock(t, filepath.Join(root, "x.lock"), "w", 77, "far-host", time.Second)
					return len(p), nil
				}, form, root)
				if code != c.code || !strings.Contains(complaint, c.says) || c.says == "" && complaint != "" {
					t.Errorf("%s, %v: exit code %d: %s", form, c.err, code, complaint)
				}
			}
		}
	}
	code, complaint := watchInto(t, func([]byte) (int, error) { panic("the moon") }, root)
	if code != 70 || !strings.Contains(complaint, "the moon") {
		t.Errorf("exit code %d: %s", code, complaint)
	}
}

// Standard output takes nothing, and its write cannot be called back: the time is over all the same.
func TestWatchEndsThoughNobodyReads(t *testing.T) {
	free := make(chan struct{})
	defer close(free)
	code, complaint := watchInto(t, func(p []byte) (int, error) {
		<-free
		return len(p), nil
	}, "--timeout", "100ms", t.TempDir())
	if code != 124 || !strings.Contains(complaint, "timed out after 100ms") {
		t.Errorf("exit code %d: %s", code, complaint)
	}
}

// With --timeout 0 it tells what is now.
func TestWatchOnce(t *testing.T) {
	root := t.TempDir()
	lock(t, filepath.Join(root, "a.lock"), "w", 77, "far-host", 80*time.Second)
	var out strings.Builder
	code, _ := watchInto(t, func(p []byte) (int, error) { return out.Write(p) }, "--timeout", "0", root)
	if code != 124 || !regexp.MustCompile(`^watching 1 entry in \S+ \([^)]+\)\nNothing is stuck\.\n$`).MatchString(out.String()) {
		t.Errorf("exit code %d: %s", code, &out)
	}
	lock(t, filepath.Join(root, ".a.lock.reclaim"), "r", 77, "old-host", time.Second)
	out.Reset()
	_, _ = watchInto(t, func(p []byte) (int, error) { return out.Write(p) }, "--timeout", "0", "--plain", root)
	if !regexp.MustCompile(`^Watching 2 entries in \S+, [^.]+\. 1 stuck: a\.lock, blocked by a token of old-host\..*\n$`).MatchString(out.String()) {
		t.Errorf("it says %s", &out)
	}
}

func TestWatchRefusals(t *testing.T) {
	for _, args := range [][]string{{"--json", "--plain"}, {"nosuch"}, {""}, {"--kind", "lock"}} {
		if code, complaint := watchInto(t, func(p []byte) (int, error) { return len(p), nil }, args...); code != 2 || complaint == "" {
			t.Errorf("%q: exit code %d: %s", args, code, complaint)
		}
	}
	var e bytes.Buffer
	env := cli.Env{Stdin: os.Stdin, Stdout: &e, Stderr: &e, Getenv: func(string) string { return "" }}
	if code := cli.Main(t.Context(), []string{"watch"}, env); code != 2 || !strings.Contains(e.String(), "no place to watch") {
		t.Errorf("exit code %d: %s", code, &e)
	}
	e.Reset() // without a home no path is below it
	if code := cli.Main(t.Context(), []string{"watch", "--timeout", "0", t.TempDir()}, env); code != 124 || strings.Contains(e.String(), "~") {
		t.Errorf("exit code %d: %s", code, &e)
	}
}

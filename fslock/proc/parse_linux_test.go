package proc

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// statText writes a stat line as the kernel does: nothing in the name is escaped.
func statText(name []byte, state byte, parent, threads int, start uint64) []byte {
	return fmt.Appendf(nil, "4242 (%s) %c %d 1 1 34817 1 4194304 1 2 3 4 5 6 7 8 20 0 %d 0 %d 1 2 18446744073709551615\n",
		name, state, parent, threads, start)
}

func TestNameThatPretendsToBeAState(t *testing.T) {
	for _, name := range []string{
		"", "sh", ")", "((", "a) Z 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 1", "x)\n4242 (y", "\x00\xff\x1b[2J", strings.Repeat("k", 64),
	} {
		st, ok := parseStat(statText([]byte(name), 'S', 7, 3, 123456))
		if want := (statLine{4242, name, 'S', 7, 3, 123456}); !ok || st != want {
			t.Errorf("%q: got %+v, %v", name, st, ok)
		}
	}
	for _, text := range []string{
		"", "4242", "4242 (sh", "4242 sh) S", "(sh) S 1", "x (sh) S 1", "4242 (sh) S", "4242 (sh) S x",
		"4242 (sh) S 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 -5", "4242 )sh( S 1",
	} {
		if st, ok := parseStat([]byte(text)); ok {
			t.Errorf("%q was taken for %+v", text, st)
		}
	}
}

func FuzzStat(f *testing.F) {
	f.Add([]byte("sh"), byte('S'), 1, 1, uint64(5), []byte("4242 (sh) S 1 1"))
	f.Add([]byte(") Z 0"), byte('Z'), 0, 0, ^uint64(0), []byte(")("))
	f.Fuzz(func(t *testing.T, name []byte, state byte, parent, threads int, start uint64, raw []byte) {
		parseStat(raw)
		if state <= ' ' || state >= 0x7f || state == ')' {
			return // the kernel writes letters
		}
		st, ok := parseStat(statText(name, state, parent, threads, start))
		if want := (statLine{4242, string(name), state, parent, threads, start}); !ok || st != want {
			t.Errorf("got %+v, %v, want %+v", st, ok, want)
		}
	})
}

func FuzzStatus(f *testing.F) {
	f.Add("sh", 1, 2, []byte("Name:\tsh\nTgid:\t5\nNSpid:\t5\t1\n"))
	f.Add("x\\nTgid:\t9", 0, -1, []byte("\nNSpid:\tx"))
	f.Fuzz(func(t *testing.T, name string, outer, inner int, raw []byte) {
		parseStatus(raw)
		name = strings.NewReplacer("\\", "\\\\", "\n", "\\n").Replace(name) // as the kernel does
		text := fmt.Sprintf("Name:\t%s\nState:\tS\nTgid:\t%d\nPid:\t1\nNSpid:\t%d\t%d\nThreads:\t1\n",
			name, outer, outer, inner)
		got := parseStatus([]byte(text))
		if want := (statusFile{outer, []int{outer, inner}}); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

func TestStatusOfOldKernels(t *testing.T) {
	if got := parseStatus([]byte("Name:\tsh\nTgid:\t5\n")); got.nspid != nil || got.tgid != 5 {
		t.Errorf("got %+v", got)
	}
	if got := parseStatus([]byte("Name:\tsh\nNSpid:\t5\tx\n")); got.nspid != nil {
		t.Errorf("got %+v", got)
	}
}

func TestKernelLockList(t *testing.T) {
	const text = `1: POSIX  ADVISORY  WRITE 10 fe:00:1 0 EOF
2: FLOCK  ADVISORY  WRITE 11 fe:01:10150878 0 EOF
2: -> FLOCK  ADVISORY  READ 12 fe:01:10150878 0 EOF
2:  -> FLOCK  ADVISORY  WRITE 13 fe:01:10150878 0 EOF
3: LEASE  ACTIVE    READ  14 fe:01:2 0 EOF
4: FLOCK  ADVISORY  WRITE 0 fe:01:3 0 EOF
5: FLOCK  ADVISORY  WRITE x fe:01:3 0 EOF
6: FLOCK  ADVISORY  WRITE 15 fe:01 0 EOF
7: FLOCK  ADVISORY  WRITE 15 fg:01:3 0 EOF
8: FLOCK
9:

`
	dev := unix.Mkdev(0xfe, 1)
	want := []FileLock{
		{11, dev, 10150878, false}, {12, dev, 10150878, true}, {13, dev, 10150878, true},
	}
	if got := parseLocks([]byte(text)); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

func TestDescriptorInformation(t *testing.T) {
	for text, want := range map[string]fdInfo{
		"pos:\t0\nflags:\t02100001\nmnt_id:\t27\nino:\t99\nlock:\t1: FLOCK  ADVISORY  WRITE 1 fe:00:99 0 EOF\n": {99, true, true, true},
		"pos:\t0\nflags:\t0100002\nmnt_id:\t27\n":                                                              {0, false, true, false},
		"pos:\t0\nflags:\t0100000\nmnt_id:\t27\nino:\t99\nlock:\t1: POSIX  ADVISORY  WRITE 1 fe:00:99 0 EOF\n": {99, true, false, false},
		"flags:\t012000001\nino:\t5\n":                                                                         {5, true, false, false}, // O_PATH
		"flags:\tx\nino:\tx\n":                                                                                 {},
		"":                                                                                                     {},
	} {
		if got := parseFDInfo([]byte(text)); got != want {
			t.Errorf("%q: got %+v", text, got)
		}
	}
}

func TestMountTable(t *testing.T) {
	const text = `22 27 0:21 / /proc rw,relatime - proc proc rw,hidepid=invisible
36 31 0:33 /docker/a\040b /sys/fs/cgroup/free\040zer rw shared:9 - cgroup cgroup rw,freezer
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
x 31 0:38 / /a rw - b c d
42 31 0:38 / /a rw - b
42 31 0:38 / /a rw
43 31 0:38 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
`
	mounts := parseMounts([]byte(text))
	if len(mounts) != 4 || mounts[0] != (mount{22, "/", "/proc", "proc", "rw,hidepid=invisible"}) {
		t.Fatalf("got %+v", mounts)
	}
	want := []freezer{{false, "/docker/a b", "/sys/fs/cgroup/free zer"}, {true, "/", "/sys/fs/cgroup/unified"}}
	if got := findFreezers(mounts); !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v", got)
	}
	for path, below := range map[string]string{
		"/docker/a b/c": "/c", "/docker/a b": "", "/docker/a bc": "no", "/other": "no", "/../x": "no",
	} {
		if got, ok := want[0].below(path); ok != (below != "no") || ok && got != below {
			t.Errorf("%s: got %q, %v", path, got, ok)
		}
	}
	if got, ok := want[1].below("/user.slice"); !ok || got != "/user.slice" {
		t.Errorf("got %q, %v", got, ok)
	}
	if got := unescape(`a\011b\\134\04`); got != "a\tb\\\\"+`\04` && got != "a\tb\\\\04" {
		t.Errorf("got %q", got)
	}
}

// What the kernel shows of this very process is what the parsers were written for.
func TestParsersReadTheKernel(t *testing.T) {
	self, err := readStat("/proc/self/stat")
	if err != nil || self.pid != os.Getpid() || self.parent != os.Getppid() || self.threads < 1 || self.start == 0 {
		t.Errorf("got %+v, %v", self, err)
	}
	b, err := readWhole("/proc/self/status", nil)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile("/proc/self/status")
	if err != nil || bytes.Count(b, []byte("\n")) != bytes.Count(whole, []byte("\n")) {
		t.Errorf("read %d bytes, want %d, %v", len(b), len(whole), err)
	}
	if st := parseStatus(b); st.tgid != os.Getpid() || len(st.nspid) == 0 {
		t.Errorf("got %+v", st)
	}
	if _, err := readStat(procPath(1<<22-1, "stat")); err != ErrNoProcess { //nolint:errorlint // exactly that
		t.Errorf("nobody: got %v", err)
	}
	if got, want := inode("/proc/self/ns/pid"), "pid:["+strconv.FormatUint(inode("/proc/self/ns/pid"), 10)+"]"; got == 0 {
		t.Errorf("got %d", got)
	} else if link, err := os.Readlink("/proc/self/ns/pid"); err != nil || link != want {
		t.Errorf("got %s, want %s, %v", want, link, err)
	}
}

func TestBootTimeByTheClocksIsThatOfProcStat(t *testing.T) {
	for range 100 {
		clock, known := clockBoot()
		stat, err := statBoot()
		if err != nil {
			t.Fatal(err)
		}
		if known && clock != stat {
			t.Errorf("the clocks say %d, /proc/stat %d", clock, stat)
		}
	}
}

func TestProcThatHidesProcesses(t *testing.T) {
	for _, c := range []struct {
		options string
		group   int
		visible bool
	}{
		{"rw", -1, true},
		{"rw,hidepid=off", -1, true},
		{"rw,hidepid=0", -1, true},
		{"rw,gid=5", -1, true},
		{"rw,hidepid=invisible", -1, false},
		{"rw,hidepid=2", 0, true}, // the group of root, if none is named
		{"rw,hidepid=1,gid=5", 5, true},
		{"rw,gid=5,hidepid=noaccess", 0, false},
		{"rw,hidepid=ptraceable", 0, false},
		{"rw,hidepid=4", 0, false},
		{"rw,hidepid=someday", 0, false},
		{"rw,hidepid=1,gid=x", 0, false},
	} {
		if got := hides(c.options, func(gid int) bool { return gid == c.group }); got == c.visible {
			t.Errorf("%+v: hides %v", c, got)
		}
	}
	if _, ok := procOptions(nil); ok {
		t.Error("options of a mount that is not listed")
	}
}

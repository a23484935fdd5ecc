package distributed

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// DefaultTimeout is how long a group waits for a rank that has not come or says nothing.
const DefaultTimeout = time.Minute

// Config says which rank of which group a process is. The zero value is a process alone.
type Config struct {
	Rank, Size int    // this process is rank Rank of Size, counted from 0
	LocalRank  int    // which of the ranks on its machine it is, and so which GPU it takes
	Address    string // host:port where rank 0 listens and the others meet it
	// Job tells groups apart that meet at one address by mistake: a rank of another job is turned
	// away.
	Job string
	// Secret is what only the group's ranks know, and prove to each other before anything else: 32
	// random bytes in hexadecimal, say. Without one, whoever reaches Address can join.
	Secret string
	// Timeout is how long to wait for a rank that has not come or says nothing; 0 means
	// DefaultTimeout.
	Timeout time.Duration
	// Lost says what the others do when a rank is lost. All ranks need the same.
	Lost Lost
	// Wires connect the ranks; nil means TCP.
	Wires Wires
}

// Lost is what the other ranks of a group do when one is lost: its process or its machine ended, or
// nothing is heard of it for Config.Timeout. A rank that gives up ([Group.Abort]) ends the group in
// any case.
type Lost string

const (
	LostEnds     Lost = ""        // the group ends
	LostReplaced Lost = "replace" // Renew waits for another process that takes its place
	LostMissed   Lost = "fewer"   // Renew goes on without it; not without rank 0
)

// Validate reports what is wrong with it.
func (l Lost) Validate() error {
	if l != LostEnds && l != LostReplaced && l != LostMissed {
		return fmt.Errorf("is %q, it needs to be %s or %s, or nothing for a group that ends", string(l), LostReplaced, LostMissed)
	}
	return nil
}

func (c Config) timeout() time.Duration {
	if c.Timeout == 0 {
		return DefaultTimeout
	}
	return c.Timeout
}

// Validate reports what is wrong with a config.
func (c Config) Validate() error {
	switch {
	case c.Size < 0 || c.Size > maxSize:
		return fmt.Errorf("distributed: Size is %d, it needs to be from 1 to %d", c.Size, maxSize)
	case c.Size <= 1 && c.Rank != 0:
		return fmt.Errorf("distributed: Rank is %d, a process alone is rank 0", c.Rank)
	case c.Size <= 1:
		return nil
	case c.Rank < 0 || c.Rank >= c.Size:
		return fmt.Errorf("distributed: Rank is %d, it needs to be from 0 to %d for Size %d", c.Rank, c.Size-1, c.Size)
	case c.LocalRank < 0:
		return fmt.Errorf("distributed: LocalRank is %d, it needs to be 0 or more", c.LocalRank)
	case c.Timeout < 0:
		return fmt.Errorf("distributed: Timeout is %v, it needs to be positive, or 0 for %v", c.Timeout, DefaultTimeout)
	}
	if err := c.Lost.Validate(); err != nil {
		return fmt.Errorf("distributed: Lost %w", err)
	}
	if _, port, err := net.SplitHostPort(c.Address); err != nil {
		return fmt.Errorf("distributed: Address is %q, it needs to be host:port: %w", c.Address, err)
	} else if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("distributed: Address is %q, its port needs to be from 1 to 65535", c.Address)
	}
	return nil
}

// maxSize bounds what a wrong variable can ask for.
const maxSize = 1 << 16

// secretVariable is the variable of a group's secret.
const secretVariable = "STHENO_GROUP_SECRET"

// launcher names the variables in which a launcher tells a process its place.
type launcher struct {
	rank, size, local string
	job               []string // the first that is set names the job
	host              func(getenv func(string) string) string
}

// launchers are asked in this order: torchrun's variables, which Kubernetes' PyTorchJob and Launch
// set too, are set on purpose where a program runs within a Slurm job.
var launchers = []launcher{
	{rank: "RANK", size: "WORLD_SIZE", local: "LOCAL_RANK", job: []string{"TORCHELASTIC_RUN_ID"}},
	{rank: "OMPI_COMM_WORLD_RANK", size: "OMPI_COMM_WORLD_SIZE", local: "OMPI_COMM_WORLD_LOCAL_RANK",
		job: []string{"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}, host: hostOfOpenMPI},
	{rank: "SLURM_PROCID", size: "SLURM_NTASKS", local: "SLURM_LOCALID", job: []string{"SLURM_JOB_ID"}, host: hostOfSlurm},
}

// FromEnvironment reads the variables that torchrun, Kubernetes' PyTorchJob, Slurm and Open MPI
// set. Without any of them it returns the zero Config, a process alone. MASTER_ADDR and MASTER_PORT
// are where the ranks meet; under Slurm the first node of the step and a port that follows from the
// job's number are taken where they are not set, and under Open MPI this machine where all ranks
// are on it. STHENO_GROUP_SECRET is the group's secret.
func FromEnvironment() (Config, error) { return fromEnvironment(os.Getenv) }

func fromEnvironment(getenv func(string) string) (Config, error) {
	for _, l := range launchers {
		if getenv(l.rank) == "" || getenv(l.size) == "" {
			continue
		}
		return l.config(getenv)
	}
	if getenv("RANK") != "" || getenv("WORLD_SIZE") != "" {
		return Config{}, errors.New("distributed: of the variables RANK and WORLD_SIZE one is set, both or none are needed")
	}
	return Config{}, nil
}

func (l launcher) config(getenv func(string) string) (Config, error) {
	var c Config
	for _, v := range []struct {
		name string
		to   *int
	}{{l.rank, &c.Rank}, {l.size, &c.Size}, {l.local, &c.LocalRank}} {
		text := getenv(v.name)
		if text == "" && v.to == &c.LocalRank {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return Config{}, fmt.Errorf("distributed: the variable %s is %q, it needs to be a number", v.name, text)
		}
		*v.to = n
	}
	for _, name := range l.job {
		if c.Job = getenv(name); c.Job != "" {
			break
		}
	}
	if c.Size <= 1 {
		return Config{LocalRank: c.LocalRank}, nil
	}
	host, port := getenv("MASTER_ADDR"), getenv("MASTER_PORT")
	if host == "" && l.host != nil {
		host = l.host(getenv)
	}
	if host == "" {
		return Config{}, fmt.Errorf("distributed: %s says that there are %d ranks, but MASTER_ADDR, the host of rank 0, is not set", l.size, c.Size)
	}
	if port == "" {
		if l.host == nil {
			return Config{}, errors.New("distributed: MASTER_ADDR is set, but MASTER_PORT is not")
		}
		port = strconv.Itoa(portOf(c.Job))
	}
	c.Address, c.Secret = net.JoinHostPort(host, port), getenv(secretVariable)
	return c, c.Validate()
}

// hostOfOpenMPI is this machine where all ranks are on it; Open MPI does not tell where others are.
func hostOfOpenMPI(getenv func(string) string) string {
	if getenv("OMPI_COMM_WORLD_LOCAL_SIZE") == getenv("OMPI_COMM_WORLD_SIZE") {
		return "127.0.0.1"
	}
	return ""
}

// hostOfSlurm is the first node of the step, which has task 0 unless tasks are distributed in a way
// of one's own.
func hostOfSlurm(getenv func(string) string) string {
	nodes := getenv("SLURM_STEP_NODELIST")
	if nodes == "" {
		nodes = getenv("SLURM_JOB_NODELIST")
	}
	return firstNode(nodes)
}

// firstNode is the first of a list of nodes as Slurm writes it: "gpu[07-09,12],login" begins with
// gpu07.
func firstNode(list string) string {
	prefix, rest, ranges := strings.Cut(list, "[")
	if i := strings.IndexByte(prefix, ','); i >= 0 {
		return prefix[:i]
	}
	if !ranges {
		return prefix
	}
	numbers, suffix, _ := strings.Cut(rest, "]")
	if i := strings.IndexAny(suffix, ",["); i >= 0 {
		suffix = suffix[:i]
	}
	if i := strings.IndexAny(numbers, ",-"); i >= 0 {
		numbers = numbers[:i]
	}
	return prefix + numbers + suffix
}

// portOf is a port that all ranks of a job agree on: from 20,000 on, so that it is nobody's own.
func portOf(job string) int {
	hash := uint32(2166136261) // FNV-1a
	for _, b := range []byte(job) {
		hash = (hash ^ uint32(b)) * 16777619
	}
	return 20000 + int(hash%10000)
}

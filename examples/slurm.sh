#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# A small Slurm cluster: a controller on the first host, a node on each of four, and a client that runs an MPI
# program by srun. examples/slurm.toml starts it in a lab. All hosts share the directory that it is started in.
# Nobody is asked for a password: this is for trying, not for keeping.
#
# usage: verbatim run sh slurm.sh controller | node | client PROGRAM
set -eu
export SLURM_CONF="$PWD/slurm.conf"
nodes=4

# Slurm 22.05 has no switch for doing without control groups: it never looks for those of version 1 here.
configure() {
	case $(slurmd -V) in
		*" 2"[0-2].*) groups=cgroup/v1 ;;
		*) groups=disabled ;;
	esac
	echo "CgroupPlugin=$groups" >cgroup.conf
	cat >slurm.conf.new <<-END
		ClusterName=lab
		SlurmctldHost=$(hostname)
		SlurmUser=$(id -un)
		SlurmdUser=$(id -un)
		AuthType=auth/none
		CredType=cred/none
		MpiDefault=pmix
		ProctrackType=proctrack/linuxproc
		TaskPlugin=task/none
		SelectType=select/linear
		SlurmctldPidFile=/tmp/slurmctld.pid
		SlurmdPidFile=/tmp/slurmd.pid
		SlurmdSpoolDir=/tmp/slurmd
		StateSaveLocation=/tmp/slurmctld
		SlurmdParameters=config_overrides
		NodeName=h[1-$nodes] CPUs=1
		PartitionName=all Nodes=ALL Default=YES
	END
	mv slurm.conf.new slurm.conf # the others wait for it
}

await_configuration() {
	until [ -e slurm.conf ]; do sleep 0.2; done
}

controller() {
	configure
	mkdir /tmp/slurmctld
	exec slurmctld -D
}

node() {
	await_configuration
	mkdir /tmp/slurmd
	exec slurmd -D -N "$(hostname)"
}

# Programs get the client's environment, so they find verbatim on the other hosts, too.
client() {
	await_configuration
	until [ "$(sinfo --noheader --states=idle --format=%D)" = $nodes ]; do sleep 0.5; done
	srun -N $nodes hostname
	srun -N $nodes "$1"
}

"$@"

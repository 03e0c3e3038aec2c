"""Confine, start, watch and end programs that nobody here has written: the names that the packages above may use.

Importing this loads nothing; an import contract keeps the modules below it to this package.
"""

from typing import TYPE_CHECKING

from quarterdeck_protocol.lazy import lazy_barrel

if TYPE_CHECKING:
    from .doctor.probe import known_machine as known_machine
    from .doctor.self_test import self_test as self_test
    from .doctor.trials import try_cgroups as try_cgroups
    from .hostile_files import MAX_LINKS as MAX_LINKS
    from .hostile_files import HostileTree as HostileTree
    from .hostile_files import NotRegularError as NotRegularError
    from .hostile_files import follow as follow
    from .hostile_files import open_regular as open_regular
    from .hostile_files import path_of_fd as path_of_fd
    from .hostile_files import remove_tree as remove_tree
    from .hostile_files import temporary_folder as temporary_folder
    from .network.namespace import own_addresses as own_addresses
    from .network.recorder import HostRecorder as HostRecorder
    from .policy.choice import choose as choose
    from .policy.choice import reaches as reaches
    from .policy.confinement import Confinement as Confinement
    from .policy.diagnosis import Diagnosis as Diagnosis
    from .policy.diagnosis import DiagnosisLine as DiagnosisLine
    from .policy.diagnosis import SelfTest as SelfTest
    from .policy.diagnosis import diagnose as diagnose
    from .policy.limits import DiskUse as DiskUse
    from .policy.limits import Excess as Excess
    from .policy.limits import ProcessTree as ProcessTree
    from .policy.limits import Usage as Usage
    from .policy.machine import Machine as Machine
    from .policy.mounts import Places as Places
    from .policy.mounts import ancestors as ancestors
    from .policy.mounts import is_within as is_within
    from .policy.mounts import is_within_any as is_within_any
    from .policy.promises import Receipt as Receipt
    from .program.installations import SYSTEM_FOLDERS as SYSTEM_FOLDERS
    from .program.installations import Prefix as Prefix
    from .program.installations import environment_of as environment_of
    from .program.installations import is_environment as is_environment
    from .program.installations import is_installation as is_installation
    from .program.installations import prefix_of as prefix_of
    from .program.launch import LaunchError as LaunchError
    from .program.launch import LaunchPlan as LaunchPlan
    from .program.launch import plan_launch as plan_launch
    from .program.launch import words_of as words_of
    from .program.needed_paths import RequiredPath as RequiredPath
    from .program.resolve import Program as Program
    from .program.resolve import resolve_program as resolve_program
    from .run.cgroup import sweep_cgroups as sweep_cgroups
    from .run.confine import Requester as Requester
    from .run.confine import confine as confine
    from .run.confine import settle as settle
    from .run.confine import showable as showable
    from .run.disk_use import disk_use as disk_use
    from .run.disk_use import measure_disk_use as measure_disk_use
    from .run.hints import Denial as Denial
    from .run.hints import find_denial as find_denial
    from .run.hints import infer_hints as infer_hints
    from .run.hints import missing_paths as missing_paths
    from .run.hints import why_not_granted as why_not_granted
    from .run.home_links import HOME_NOTE as HOME_NOTE
    from .run.home_links import links_of as links_of
    from .run.monitor import MONITOR_TICK_S as MONITOR_TICK_S
    from .run.monitor import TreeMonitor as TreeMonitor
    from .run.monitor import Watch as Watch
    from .run.prepare import Prepared as Prepared
    from .run.prepare import Preparer as Preparer
    from .run.process import ConfinedProcess as ConfinedProcess
    from .run.process_settings import OomScore as OomScore
    from .run.process_settings import adopt_orphans as adopt_orphans
    from .run.process_settings import die_with_parent as die_with_parent
    from .run.process_settings import give_back_large_blocks as give_back_large_blocks
    from .run.process_settings import open_files_of_children as open_files_of_children
    from .run.process_settings import raise_oom_score as raise_oom_score
    from .run.process_settings import raise_open_files_limit as raise_open_files_limit
    from .run.process_settings import set_process_name as set_process_name
    from .run.process_signals import ask_to_end as ask_to_end
    from .run.process_signals import descendants as descendants
    from .run.process_signals import kill_descendants as kill_descendants
    from .run.process_signals import signal_tree as signal_tree
    from .run.processes import is_stopped as is_stopped
    from .run.processes import waited_s as waited_s
    from .run.quarantine import Caught as Caught
    from .run.quarantine import HookGuard as HookGuard
    from .run.quarantine import QuarantineEntry as QuarantineEntry
    from .run.quarantine import give_back as give_back
    from .run.quarantine import kept_at as kept_at
    from .run.quarantine import quarantine_entries as quarantine_entries
    from .run.quarantine import quarantine_notice as quarantine_notice
    from .run.quarantine import remove_entry as remove_entry
    from .run.start import run_foreground as run_foreground
    from .run.start import start as start
    from .run.stderr import StderrKeeper as StderrKeeper
    from .run.stderr import split_time as split_time
    from .signal_names import signal_name as signal_name
    from .view.closed_paths import is_hook as is_hook
    from .view.own_code import own_code as own_code

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_barrel(__name__)

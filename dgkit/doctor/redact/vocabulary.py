# SPDX-License-Identifier: Apache-2.0
"""Words of three letters or more that are never redacted: the doctor's vocabulary.

The list is written by hand and by `tests/doctor/vocabulary.py --add`. It is not derived from the
prose of the source, so that editing a sentence does not change what a recording hides.
"""

import re

_TEXT = """
aarch abhltv abi about above absent abstract access accurate acs acscap acsctl active ada adapter
adapters add addr address addresses addressing admin advice advisory aeae after again against ages
alarms alibaba alike alive all alloc allowed allowerasing almalinux alone also alternatives amazon
amd amdgpu amdkfd ampere amzn and annotated annotations answer answers any anywidget apart api
append appendicies appendix apple applicable application applications apt arch architecture archive
are argtypes argument argv arm ascii asdict ask asked asking asks assumed ats attempt attribute
attributeerror attributes attrs authenticamd auto awk aws azure back backslashreplace badge bar bare
bars baseexception bba bcore before below benchmark best better between bfb bfe bhyve big bin
bindings bios bit bits blackwell blob block blocked blocking blocks blog bluefield bluefielddpuosv
bluefields bnxt board bochs body bokeh bond bonded bookworm bool booleans boot both bottlerocket box
branch branches brand break bridge bridges broadcom broken bsp buf buffer bufs build builder
building buildkit built builtins bundle bundled bus busy bxeon bypass byref byte bytearray bytes
cache cached cachedfact cali call callable callablemodule can candidates cannot cap capabilities
capability capable capeff capitalize caps card cards case cause caused causes cdi cdll cell cells
centos cfg cgroup cgroups chain change changes channel channels char check checked checkjob checkout
checks checkverdicts chelsio child childprocesserror children chipset choice choose chosen chr
cilium cisco class classes cli client clique clk clock cloexec clone close closed cloud clusteruuid
cmafree cmatotal cmdline cmpltredir cni cns code codename codes coherent collapsed collect
collection colon colours columns com combinations comch comes command commands comment common compat
compatibility compatible compile completed compromised compute computed computer concerned
concurrent condition conf confidential config configs configuration configuring connect connected
connectx consequences considerations container containerd containerenv containers contains content
context contextlib contextmanager contexts control controller controllers convert copy core coreos
correct corrected cos count counter counting counts cpu cpuid cpuinfo cpulist cpunodebind cpus cqe
create created css csv ctk ctypes cuda cudahostalloc cudevice cudeviceget cudevicegetattribute
cudevicegetcount cudevicegetname cudevicegetpcibusid cudevicegetuuid cudeviceprimaryctxrelease
cudeviceprimaryctxretain cudrivergetversion cugeterrorname cuinit cumemcreate
cumemgethandleforaddressrange cupy curesult current cut cycle daemon data datacenter datapath
datapathspec date datetime dealloc deb debhelper debian decode decodeerror decompress decompressobj
ded deepep deeplearning deepseek default defaults defaultselector defpath delay deleted denied
dependency depends deploy deprecated depth der dereg describe description descriptor design detailed
details dev devel developer development device devicefilegid devicefilemode devicekind devices
devinfo devlink devnull devscripts devuan devx dgkit dgx diagnose diagnosis dict difference
different digest digits dir direct directories directtrans disable disabled disagree disagrees
discard discourse discrete disk disks display distant distribution div dklen dkms dma dmabuf dmar
dmesg dmi dnf doca docker dockerenv docs doctor document documentation does domain domains done
doorbell down downstream dpkg dpu dpus dra dracut drain drawing dri driver drivers drm drop dss
dummy dumps dup dword dxg dyndbg eacces ebadf ecap echo ecpf efa effect efi efivars egressctrl
einval embedded empty enable enabled enableresizablebar enablestreammemops encode end ended endian
endpoint endpoints ends endswith engine engines enlarge enosys enough enter enterprise entries entry
enum enumerate env environ environment enx eopnotsupp eperm eprotonosupport equals erdma err errno
error errorcode errors escape escaped escaping eswitch etc eth ethernet ethtool eui euid event every
everything evidence examine exception exclusive executable executor exempt exit exitcode exited
exitstack expected experimental explain explained explains export exported exports express extend
extended external extra extras fabric fabricmanager fact factory facts fail failed fails failures
faint fakeroot false families family faq far fast fatal fault faults fcce features fedora fermi ffff
field fields file filename filenotfounderror fileobj files filter filtered finalize finalizer find
findall finding findinggroup findings finditer firmware first fit fits fitting fixed flag flags
flannel flatcar flavour flint float floors flow flush folder folders following follows foot for
force fork form format formatters forms forum forums found free from fromhex fromkeys frozen
frozenset fsencode full fullmatch func function functions functools gap garden gather gcp gdr
gdrcopy gdrdrv geforce general generation generic genuineintel get getaffinity getattr getent
geteuid gethostname getitem getpid getrlimit gib gid gids gigabytes git github give given glob gns
gnu goal goals good google gpu gpudirect gpunetio gpus grace graph grdmapcitopocheckoverride grep
grey group groups grow grp grub grubby gsp guest guests guid guide gunzip hairpin handle hard
hardware harmless has hasattr hash hashlib hat hca head header headers heading headline heap
heterogeneous hex hexes hidden hmac hmm hns holds home hopper host hostbridge hostname hosts how hpf
html https huawei hung hwe hwloc hyper hypervisor hypervisors hyphens ibdev ibgda ibrc ibstat ibv
ibvdevice ibvdevices ibverbs identifying identity idle ids ifname ignorecase image images imex
imexchannels import imports inactive indent index inet inference infiniband infinity info
information infra init initramfs inner innotek insert inside insmod install installation installed
installs instance instances instead insufficient int integrated intel intenum interface interfaces
internal intersection introduction invalid iommu iommus ionic iot ipaddress ipc ipmitool ipv ipvlan
ipython ipywidgets irdma isalnum isalpha isdecimal isdigit isdir isfile isinstance islice isoformat
isprintable isreg isspace issuperset isupper item items iter iterable iterator itertools iwarp
jetson job jobs join journalctl json judge judged jupyterlab kbuild kconfig keep kepler kept kernel
kernels key keyboardinterrupt keyerror keys kfd kib kill killpg kind kinds kinoite kmod know known
knows kstrtobool kubepods kubernetes kvm lab label labels lacks lanes language laptop last lastgroup
late latest latin layer layers lazy ldconfig lead least left legacy legend len less letter level lib
libc libcuda libcudart libdoca libgdrapi libibverbs libmlx libnvidia libpod libraries library
librdmacm libsubunit libx like likely limit limited limitmemlock limits line lines link links linux
linuxmint list listed listing listings lists literal little live livereader lnk lnkcap lnksta load
loadable loaded loader loads local localdomain localhost lock locked locks log long looked lost loud
lovelace low lower lsmod lspci lstrip lxc lxd mac machine machines macv made main mainline major
make man mana managed management manager map mapped mapping maps margin mark marked marvell mask
masks master match matches matplotlib matrix max maxine maxwell may maybe mellanox mem membind
meminfo memlock memory message meta metadata metal mft mib micro microos microsoft mig migration min
minor mirror misc mismatch missing mkdir mknod mlnx mlnxbf mlnxofedinstall mlnxofedv mlx mlxbf
mlxconfig mlxfw mlxfwmanager mlxfwreset mlxprivhost mmap mmio mnnvl mode model models modes modeset
modestate modinfo modprobe modular module modules moduletype mok mokutil monotonic more most mounted
move mps msgspec msgspecerror mst mstconfig mstflint mstfwreset multi multiline naa name named
namedtuple names namespace namespaces narrowest native nbsp nccl nccltoposetpaths ndevs near nearest
need needed needs nerdctl net netdev nets network networking networks new newer news next nic nics
noctty node nodes nodewright nodex noexec nofile nonblock none nopt not notadirectoryerror note
notebook notebooks notes notify notimplementederror nouveau now nowait null numa numactl number
numbered numbers numpy nvcc nvgpu nvidia nvidiactl nvlink nvlinks nvme nvml nvreg nvrm nvshmem
nvswitch nvswitches nvtrust obj object ofed off offload offset ofi old older oldest omit once one
online only open opened openibd opensm openstack opensuse openucx operating operation operator ops
opt optimizing option options oracle order ordering ordinal org origin origins oserror other others
otherwise ours out outdated output outputs over override overview own owner package
packagenotfounderror packages page pageable pages pair pairs panel panels paragraph parallels
parameter parameters params parent parents parse parsed part partial partition parts pascal pasid
passes passthrough path pathlike paths pathsep pattern patterns pause pci pcidevice pcie pcielink
pciemultigpusystems pcieport pcitree pciutils pdi pdma peer peermappingoverride peermem peers
pending pensando per permissionerror persistence persistenced pgrep phb phoronix phys physfn
physical pid pillow pinned pip pipe pix pkg pkgconfig place placeholder placeholders placement
placements places plain planning platform platforms plenty plugin plural pod podman poll pop popen
port porting ports posix possible power pre prefers prefixlen present print printable priv private
privileged probe probes proc procedures process processes processlookuperror processor processors
prod product program programming programs progress property provider providers proviso proxy psb
pseudonymgenerator pseudonyms psid psids pstatus pub pull put pxb python qemu qlogic qpi quad
queried queries query question queue queued queues quiet quote quoted ran range rank ranks raspbian
rate raw rdma rdmadevice rdmadevices rdmaport rdonly rdwr reachable read reader readers reading
readings readme readthedocs ready real reap reason reasons reboot rebuild recommended record
recorded recordedreader recording recordings recursionerror red redact redacted redactor redhat
redir redirect references refus refused reg region regions register registered registration registry
registrydwords reinstall reject related release releases relevant remedies remedy remove
removeprefix removesuffix repeated replace replaced replacement report reported repository repr
representor representors reqredir requested required reserve reset resets resizable resolve resource
rest restart restarts restore restricted restype result results returncode rev reverse reversed
rfind rglob rhcos rhel right ring rlim rlimit rlock roce rocky room root roots round route row rows
rpartition rpm rshim rstrip rtx rule ruled rules run running runs runtimeerror rxe rxq said salt
same sample samples save says sbin scandir sched scheduler scheduling scm scrypt sdk search seat
second secret section sections secure secureboot seen select selected selector selectors self
sentence sentences separate separated sequence serial serials server servers serves service services
serving session set setdefault setpci setting settings settingsaccess setuid sev severity sha shaped
shared shares shim shipped shlex short shortest show shown shutil side siderolabs sides sigkill
signal signed signs silent silverblue similar simplequeue simplifying since single siw size sizes
sle sleep sles slot slots slow slower slowest small smi smigpu smmu snap snapshot snapshots soc
socket sockets soft softdoca software some sorted source sources space span spark spawn spec specs
speed speeds split splitlines src srcvalid sta stable stack staged start started starts startswith
stat state states static staticmethod status stderr stdin stdout stem stop storage store stored str
stream streams strerror strict string strip stripped strong struct structs stuck style sub subject
subjects submit submitted subnet subprocess substitute substituted subsys subsystem success sudo
suffices sufficient suggestion sum summary supplier support supported suppress sure surrogatepass
suse sva switch switchdev switches sxid symbol symbols synthetic sys sysconf sysfs system systemctl
systemd systems table tables tag tainting taken takes talos tap target tck tdx tee tegra tell
terminal tesla test tested testing tests text texts textwrap textwrapper that the theirs this thread
threading threads time timeout timeouterror timeoutexpired title tmfifo tns today together token too
took tool toolkit toolkits tools top topo topology topologymatrix torvalds total trace traceback
tracebacktype traces tracing transblk translating transport traversed tree trees tried triton
trouble troubles true trust try tun tuning tuple turing turn two txq txt type typeerror types
typevar typing uapi uar ubuntu ubyte ucx udc udmabuf uevent uid uint ulimit umem unable uname
unanswered unavailable unexplained units unix unknown unlicensed unlimited unlink unlock unmanaged
unread unrecorded unregister unregistered unscheduled unsuitable unsupported until unusable
unverified update upgrade uplink upper upstream upstreamfwd urandom url usable use used user usermod
users uses usr usual utf uuid uuids uverbs uvm value valueerror values var variant vendor vendors
venv ver verb verbose verbs verdict verdicts version versioning versions veth vfio vfs vgaarb vgpu
vgpus video virbr virtual virtualbox virtualization visible vlan vmd vmm vmware vnet vocabulary void
volta volume vpd vport vvv vxlan wait waitid waitpid waitstatus wanted warn warned warning warnings
way ways wbits weakref wexited what when where which why whys width wire with within without wlx
wnohang wnowait word words work working works workstations worst wrap wrapped wrapper wraps write
writer writes written wrong wronly wsl wwid wwn wwns www xen xeon xfc xffc xffff xffffffff xid yaml
yes yum zero zip zlib zone
"""
WORDS = frozenset(_TEXT.split())

_WORD = re.compile("[a-z]+")


def is_allowed(name: str) -> bool:
    """Return whether the name of a host, a user or a folder may stay in a recording.

    It may if it consists of known or two-letter words and at most four digits: `core` or `gpu0`
    does not identify a host, and replacing the word wherever it occurs would spoil the readings.
    """
    return sum(map(str.isdigit, name)) <= 4 and all(
        len(word) < 3 or word in WORDS for word in _WORD.findall(name.lower())
    )

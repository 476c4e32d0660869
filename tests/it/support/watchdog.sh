# Waits until standard input closes, which the end of the test process does in any case; then ends the servers whose
# data folders lie in the folder $1, unmounts what a killed test had mounted there, and removes it.
trap '' INT TERM HUP
folder=$1
read -r _

# A pid file that its server could not remove may name a stranger by now.
is_server() {
    [ ! -e /proc/self/cwd ] || [ "$(readlink "/proc/$1/cwd")" = "$2" ]
}

# $1 signal, $2 tenths of a second to wait for the end
end_servers() {
    for file in "$folder"/*/postmaster.pid; do
        [ -f "$file" ] || continue
        pid=$(head -n 1 "$file")
        [ "$pid" -gt 1 ] 2>/dev/null || continue
        data=$(cd "$(dirname "$file")" && pwd -P)
        tenths=0
        is_server "$pid" "$data" && kill -s "$1" "$pid" 2>/dev/null || continue
        while [ "$tenths" -lt "$2" ] && kill -0 "$pid" 2>/dev/null && is_server "$pid" "$data"; do
            sleep 0.1
            tenths=$((tenths + 1))
        done
    done
}

end_servers INT 100
end_servers QUIT 50
if mountpoint -q "$folder/disk"; then umount --lazy "$folder/disk"; fi
# A server or an initdb that was just starting may still write into the folder: once more, a few times.
tries=0
while rm -rf -- "$folder" 2>/dev/null; [ -e "$folder" ] && [ "$tries" -lt 50 ]; do
    end_servers QUIT 10
    sleep 0.1
    tries=$((tries + 1))
done

// SPDX-License-Identifier: Apache-2.0
package dev.fermata;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.fermata.internal.Layout;
import dev.fermata.testing.LockPath;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.logging.Level;
import java.util.logging.Logger;
import java.util.zip.CRC32C;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * Whatever stands in a lock file, it is refused by a typed error, or works; before it is opened, and while it is open.
 * {@code -Dfermata.mutations=N} for more than there are in the ordinary tests, {@code -Dfermata.seed=N} for others.
 */
class LockFileFuzzTest {
    private static final int MUTATIONS = Integer.getInteger("fermata.mutations", 100_000);
    private static final long SEED = Long.getLong("fermata.seed", 20_261_202L);
    private static final long[] NUMBERS = {0, 1, 2, 3, -1, Integer.MAX_VALUE, Integer.MIN_VALUE, Long.MAX_VALUE,
        Long.MIN_VALUE, 255, 256, 257, 0x101, 0x180, 0xc000_0000L, 0x4000_0000L, 0x1_0000_0000L, 4096, 65_535};

    private final Logger logger = Logger.getLogger("dev.fermata");
    private final Map<String, Integer> outcomes = new TreeMap<>();

    @Test
    @Timeout(value = 300, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
    void whateverStandsInAFileItIsATypedErrorOrItWorks() throws Exception {
        Level level = logger.getLevel();
        logger.setLevel(Level.OFF);
        Random random = new Random(SEED);
        try (LockPath place = LockPath.create()) {
            byte[] whole = image(place);
            try (FileChannel channel =
                    FileChannel.open(place.file(), StandardOpenOption.READ, StandardOpenOption.WRITE)) {
                for (int i = 0; i < MUTATIONS; i++) {
                    byte[] mutated = whole.clone();
                    boolean open = i % 8 == 0;
                    if (!open) {
                        mutate(mutated, random);
                    }
                    channel.truncate(whole.length); // one that claims to be unfinished is made anew, in another size
                    channel.write(ByteBuffer.wrap(mutated), 0);
                    String outcome;
                    try {
                        outcome = use(place, open ? random : null, channel, mutated);
                    } catch (Throwable e) {
                        throw new AssertionError("mutation " + i + " of seed " + SEED + ", bytes "
                                + differences(whole, mutated), e);
                    }
                    outcomes.merge(outcome, 1, Integer::sum);
                }
            }
        } finally {
            logger.setLevel(level);
        }
        System.out.println("fuzz: " + outcomes);
        assertEquals(MUTATIONS, outcomes.values().stream().mapToInt(Integer::intValue).sum());
        assertTrue(outcomes.containsKey("works"), outcomes.toString());
        assertTrue(outcomes.containsKey("DAMAGED"), outcomes.toString());
    }

    private static byte[] image(LockPath place) throws Exception {
        try (LockFile file = LockFile.builder(place.file()).participants(3).capacity(5).payload(1024).open()) {
            file.mutex("a", 8);
            file.mutex("a-name-that-is-too-long-to-fit-into-the-entry-itself", 24);
            file.mutex("strict", 8, OwnerDeath.STRICT);
        }
        return Files.readAllBytes(place.file());
    }

    private static void mutate(byte[] bytes, Random random) {
        ByteBuffer buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        for (int n = 1 + random.nextInt(3); n > 0; n--) {
            int at = place(random, bytes.length);
            switch (random.nextInt(4)) {
                case 0 -> bytes[at] ^= (byte) (1 << random.nextInt(8));
                case 1 -> bytes[at] = (byte) random.nextInt();
                case 2 -> buffer.putInt(at & ~3, (int) NUMBERS[random.nextInt(NUMBERS.length)]);
                default -> buffer.putLong(at & ~7, NUMBERS[random.nextInt(NUMBERS.length)]);
            }
        }
        if (random.nextBoolean()) { // so that more than the checksum is tried
            CRC32C crc = new CRC32C();
            crc.update(bytes, 0, Layout.H_CHECKSUM);
            buffer.putInt(Layout.H_CHECKSUM, (int) crc.getValue());
        }
    }

    /** Mostly where something stands: the header's numbers, a participant's first line, index and entries. */
    private static int place(Random random, int length) {
        int directory = Layout.HEADER + 3 * Layout.PARTICIPANT;
        return switch (random.nextInt(6)) {
            case 0 -> random.nextInt(192);
            case 1 -> Layout.HEADER + random.nextInt(3) * Layout.PARTICIPANT + random.nextInt(128);
            case 2 -> random.nextInt(length);
            default -> directory + random.nextInt(length - directory);
        };
    }

    private static String use(LockPath place, Random random, FileChannel channel, byte[] bytes) throws Exception {
        try (LockFile file = LockFile.open(place.file())) {
            if (random != null) {
                mutate(bytes, random);
                channel.write(ByteBuffer.wrap(bytes, Layout.HEADER, bytes.length - Layout.HEADER), Layout.HEADER);
            }
            String worst = "works";
            for (Step step : STEPS) {
                try {
                    step.on(file);
                } catch (DamagedMappingException | LockMismatchException | LockFileFullException | OwnerDiedException e) {
                    worst = e.getClass().getSimpleName();
                }
            }
            return worst;
        } catch (LockFileException refused) {
            return refused.reason().toString();
        } catch (DamagedMappingException damaged) {
            return "DamagedMappingException";
        }
    }

    private interface Step {
        void on(LockFile file) throws Exception;
    }

    private static final Step[] STEPS = {
        file -> file.names().forEach(String::length),
        LockFile::participants,
        LockFile::self,
        file -> file.find("absent"),
        file -> file.mutex("b", 40),
        file -> lock(file, "a"),
        file -> lock(file, "a-name-that-is-too-long-to-fit-into-the-entry-itself"),
        file -> lock(file, "strict"),
        file -> file.info("a").ifPresent(LockInfo::toString)};

    private static void lock(LockFile file, String name) {
        SharedMutex mutex = file.mutex(name);
        mutex.payload().fill((byte) 1);
        if (mutex.tryLock()) {
            assertTrue(mutex.isHeldByCurrentThread());
            assertEquals(file.self().id(), mutex.info().owner().orElseThrow().id());
            mutex.unlock();
        }
    }

    private static String differences(byte[] whole, byte[] mutated) {
        StringBuilder text = new StringBuilder();
        for (int at = Arrays.mismatch(whole, mutated); at >= 0 && at < whole.length; at++) {
            if (whole[at] != mutated[at]) {
                text.append(at).append(": ").append(whole[at]).append(" -> ").append(mutated[at]).append("; ");
            }
        }
        return text.toString();
    }
}
